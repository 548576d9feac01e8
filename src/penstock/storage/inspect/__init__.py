"""What a person asks about jobs, queues and workers.

jobs          jobs read back
selection     choosing jobs by what they are
stats         the figures of queues
system_figures   all that a monitoring system is told of one database
minutes       the figures that were noted minute by minute
watching      what is asked again and again: ends, dead letters, children
health        the facts behind `explain` and `doctor`
attention     those that may need a person's attention
search        a text among names, keys and tags
blocked_keys  keys that wait for a retry or a person
key_reasons   why an owner does not start a job
"""
