"""What Penstock speaks of: jobs, their states, queues, workers and figures, as plain values without behaviour.

Nothing here does I/O or knows a clock. Every object is frozen: what a call returned stays what it was.
"""

from penstock.model.blocked_key import BlockedKey
from penstock.model.cron import Cron
from penstock.model.drain import Drain, DrainRest
from penstock.model.explanation import Explanation
from penstock.model.job import Failure, Job
from penstock.model.load import Load
from penstock.model.queue import QueueDefinition
from penstock.model.resize import Resize
from penstock.model.rules import QueueRules
from penstock.model.shard import Shard
from penstock.model.signals import Discard, Retry, Snooze
from penstock.model.state import State
from penstock.model.stats import PartitionStats, Stats
from penstock.model.worker import WorkerInfo

__all__ = [
    "BlockedKey",
    "Cron",
    "Discard",
    "Drain",
    "DrainRest",
    "Explanation",
    "Failure",
    "Job",
    "Load",
    "PartitionStats",
    "QueueDefinition",
    "QueueRules",
    "Resize",
    "Retry",
    "Shard",
    "Snooze",
    "State",
    "Stats",
    "WorkerInfo",
]
