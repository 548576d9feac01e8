"""What a person asks and does: figures, jobs, why one does not run, cancel, retry, purge, and the health of it all.

jobs      read, cancel, retry, reschedule, purge, pause
explain   why a job is not running
figures   stats of queues, and the workers
doctor    what is wrong with the database, and what to do about it
"""

from penstock.admin.doctor import Check, doctor
from penstock.admin.explain import explain
from penstock.admin.figures import all_stats, answers, stats, workers
from penstock.admin.jobs import cancel, job, jobs, pause, purge, reschedule, resume, retry

__all__ = [
    "Check",
    "all_stats",
    "answers",
    "cancel",
    "doctor",
    "explain",
    "job",
    "jobs",
    "pause",
    "purge",
    "reschedule",
    "resume",
    "retry",
    "stats",
    "workers",
]
