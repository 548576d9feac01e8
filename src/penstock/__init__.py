"""Penstock: a partitioned, durable job queue on PostgreSQL.

from penstock import App

app = App()
emails = app.queue("emails")

@emails.task
def send(to: str) -> None: ...

send.enqueue(to="a@b.c")
app.work(until_idle=True)
"""

from penstock.app import App, Shard
from penstock.client import PendingJob, Queue, Task
from penstock.errors import (
    InvalidJob,
    JobFailed,
    LeaseLost,
    NotFound,
    PartitionUnavailable,
    PenstockError,
    QueueFull,
    RequestTimeout,
    ResultTimeout,
    SchemaMismatch,
    UnknownTask,
)
from penstock.model import (
    BlockedKey,
    Cron,
    Discard,
    Explanation,
    Failure,
    Job,
    PartitionStats,
    Resize,
    Retry,
    Snooze,
    State,
    Stats,
    WorkerInfo,
)
from penstock.version import __version__
from penstock.worker import Context, Event, Worked

__all__ = [
    "App",
    "BlockedKey",
    "Context",
    "Cron",
    "Discard",
    "Event",
    "Explanation",
    "Failure",
    "InvalidJob",
    "Job",
    "JobFailed",
    "LeaseLost",
    "NotFound",
    "PartitionStats",
    "PartitionUnavailable",
    "PendingJob",
    "PenstockError",
    "Queue",
    "QueueFull",
    "RequestTimeout",
    "Resize",
    "ResultTimeout",
    "Retry",
    "SchemaMismatch",
    "Shard",
    "Snooze",
    "State",
    "Stats",
    "Task",
    "UnknownTask",
    "Worked",
    "WorkerInfo",
    "__version__",
]
