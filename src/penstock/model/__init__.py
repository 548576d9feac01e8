"""What Penstock speaks of, as plain values.

job, job_state, explanation     a job as it is read back, the states it can be in, why it does not run
queue, rules, option, rate      what an app declares of a queue; its rules, and what is known of each option; rates
stats, worker, blocked_key      figures of queues; a worker as others see it; a key that waits
cron, load, resize, shard, drain   these, as they are read back
catalogue_states                the states of shards, key maps and partitions, and every legal step
handler_signals                 what a handler may say of its own job, by raising it
checks                          the bounds of everything a user may hand in
check                           what the doctor found
encoding                        values as JSON
short_repr                      what a REPL shows of these
error_text                      an exception as the text that is stored, with the lines of code that it came from

Nothing here does I/O or knows a clock. Every object is frozen: what a call returned stays what it was.
"""

from penstock.model.blocked_key import BlockedKey
from penstock.model.cron import Cron
from penstock.model.drain import Drain, DrainRest
from penstock.model.explanation import Explanation
from penstock.model.handler_signals import Discard, Retry, Snooze
from penstock.model.job import Failure, Job
from penstock.model.job_state import State
from penstock.model.load import Load
from penstock.model.queue import QueueDefinition
from penstock.model.resize import Resize
from penstock.model.rules import QueueRules
from penstock.model.shard import Shard
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
