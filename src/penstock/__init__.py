"""Penstock: a partitioned, durable job queue on PostgreSQL.

from penstock import App

app = App()
emails = app.queue("emails")

@emails.task
def send(to: str) -> None: ...

send.enqueue(to="a@b.c")
app.work(until_idle=True)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.version import __version__
from penstock.visible import make_log_visible

if TYPE_CHECKING:
    from penstock.app import App
    from penstock.client import PendingJob, Queue, Task
    from penstock.errors import (
        InvalidInput,
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
        WorkerStuck,
    )
    from penstock.log_records import JobFilter, JsonFormatter
    from penstock.model import (
        Attention,
        AuditEntry,
        BlockedKey,
        Cause,
        Check,
        Cron,
        Discard,
        Drain,
        DrainRest,
        Due,
        DueSpan,
        Edit,
        Explanation,
        Failure,
        FailureHistory,
        FailuresOfCause,
        History,
        HotKey,
        HotKeys,
        Job,
        JobAct,
        JobPage,
        Load,
        Minute,
        PartitionStats,
        Percentiles,
        QueueRules,
        Resize,
        Retry,
        Role,
        RunningJob,
        SearchHit,
        Shard,
        Snooze,
        State,
        Stats,
        Token,
        TraceContext,
        WorkerInfo,
    )
    from penstock.task import BatchContext, Context
    from penstock.worker import Event, Worked

# Where each name comes from, loaded when it is first used: a Spark executor that needs one part loads no other.
_HOMES = {
    "App": "penstock.app",
    "Attention": "penstock.model",
    "AuditEntry": "penstock.model",
    "BlockedKey": "penstock.model",
    "BatchContext": "penstock.task",
    "Cause": "penstock.model",
    "Check": "penstock.model",
    "Context": "penstock.task",
    "Cron": "penstock.model",
    "Discard": "penstock.model",
    "Drain": "penstock.model",
    "DrainRest": "penstock.model",
    "Due": "penstock.model",
    "DueSpan": "penstock.model",
    "Edit": "penstock.model",
    "Event": "penstock.worker",
    "Explanation": "penstock.model",
    "Failure": "penstock.model",
    "FailureHistory": "penstock.model",
    "FailuresOfCause": "penstock.model",
    "History": "penstock.model",
    "HotKey": "penstock.model",
    "HotKeys": "penstock.model",
    "InvalidInput": "penstock.errors",
    "Job": "penstock.model",
    "JobAct": "penstock.model",
    "JobFailed": "penstock.errors",
    "JobFilter": "penstock.log_records",
    "JobPage": "penstock.model",
    "JsonFormatter": "penstock.log_records",
    "LeaseLost": "penstock.errors",
    "Load": "penstock.model",
    "Minute": "penstock.model",
    "NotFound": "penstock.errors",
    "PartitionStats": "penstock.model",
    "PartitionUnavailable": "penstock.errors",
    "PendingJob": "penstock.client",
    "PenstockError": "penstock.errors",
    "Percentiles": "penstock.model",
    "Queue": "penstock.client",
    "QueueFull": "penstock.errors",
    "QueueRules": "penstock.model",
    "RequestTimeout": "penstock.errors",
    "Resize": "penstock.model",
    "ResultTimeout": "penstock.errors",
    "Retry": "penstock.model",
    "Role": "penstock.model",
    "RunningJob": "penstock.model",
    "SchemaMismatch": "penstock.errors",
    "SearchHit": "penstock.model",
    "Shard": "penstock.model",
    "Snooze": "penstock.model",
    "State": "penstock.model",
    "Stats": "penstock.model",
    "Task": "penstock.client",
    "Token": "penstock.model",
    "TraceContext": "penstock.model",
    "UnknownTask": "penstock.errors",
    "Worked": "penstock.worker",
    "WorkerInfo": "penstock.model",
    "WorkerStuck": "penstock.errors",
}

__all__ = [
    "App",
    "Attention",
    "AuditEntry",
    "BatchContext",
    "BlockedKey",
    "Cause",
    "Check",
    "Context",
    "Cron",
    "Discard",
    "Drain",
    "DrainRest",
    "Due",
    "DueSpan",
    "Edit",
    "Event",
    "Explanation",
    "Failure",
    "FailureHistory",
    "FailuresOfCause",
    "History",
    "HotKey",
    "HotKeys",
    "InvalidInput",
    "Job",
    "JobAct",
    "JobFailed",
    "JobFilter",
    "JobPage",
    "JsonFormatter",
    "LeaseLost",
    "Load",
    "Minute",
    "NotFound",
    "PartitionStats",
    "PartitionUnavailable",
    "PendingJob",
    "PenstockError",
    "Percentiles",
    "Queue",
    "QueueFull",
    "QueueRules",
    "RequestTimeout",
    "Resize",
    "ResultTimeout",
    "Retry",
    "Role",
    "RunningJob",
    "SchemaMismatch",
    "SearchHit",
    "Shard",
    "Snooze",
    "State",
    "Stats",
    "Task",
    "Token",
    "TraceContext",
    "UnknownTask",
    "Worked",
    "WorkerInfo",
    "WorkerStuck",
    "__version__",
]

make_log_visible()


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
