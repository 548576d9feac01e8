"""What a person asks about jobs, queues and workers.

jobs          jobs read back
selection     choosing jobs by what they are
stats         the figures of queues
system_figures   all that a monitoring system is told of one database
due           what of the scheduled jobs is due when
minutes       the figures that were noted minute by minute
causes        why attempts failed, and which dead letters failed for the same reason
watching      what is asked again and again: ends, dead letters, children
health        the facts behind `explain` and `doctor`
attention     those that may need a person's attention
search        a text among names, keys and tags
blocked_keys  keys that wait for a retry or a person
hot_keys      keys that most jobs wait for, counted or estimated
key_reasons   why an owner does not start a job
"""
