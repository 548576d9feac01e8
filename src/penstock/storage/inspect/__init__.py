"""What a person asks about jobs and does to them.

jobs          jobs read back
selection     choosing jobs by what they are
control       cancel, retry, reschedule, purge
stats         the figures of queues
health        the facts behind `explain` and `doctor`
blocked_keys  keys that wait for a retry or a person
key_reasons   why an owner does not start a job
"""
