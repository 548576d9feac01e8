"""What a person asks and does: figures, jobs, why one does not run, cancel, retry, purge, and the health of it all.

jobs          read, cancel, retry, reschedule, purge, pause
explain       why a job is not running
blocked_keys  keys that wait for a retry or for a person
resize        another number of partitions
figures       stats of queues, and the workers
crons         cron entries
doctor        what is wrong with the database, and what to do about it
"""

from penstock.admin.blocked_keys import blocked_keys, release
from penstock.admin.crons import (
    CronDefinition,
    pause_cron,
    read_crons,
    remove_cron,
    resume_cron,
    run_cron,
    write_cron,
)
from penstock.admin.doctor import Check, doctor
from penstock.admin.explain import explain
from penstock.admin.figures import all_stats, answers, stats, workers
from penstock.admin.jobs import cancel, job, jobs, pause, purge, reschedule, resume, retry
from penstock.admin.resize import resize

__all__ = [
    "Check",
    "CronDefinition",
    "all_stats",
    "answers",
    "blocked_keys",
    "cancel",
    "doctor",
    "explain",
    "job",
    "jobs",
    "pause",
    "pause_cron",
    "purge",
    "read_crons",
    "release",
    "remove_cron",
    "reschedule",
    "resize",
    "resume",
    "resume_cron",
    "retry",
    "run_cron",
    "stats",
    "workers",
    "write_cron",
]
