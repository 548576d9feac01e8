"""The errors Penstock raises, all in one tree.

    PenstockError
    ├── QueueFull             the queue holds max_length jobs: nothing was written
    ├── PartitionUnavailable  the database behind a partition does not answer; `outcome` as below
    ├── RequestTimeout        a call passed its request_timeout; `outcome` says whether it may have been written
    ├── LeaseLost             the job is no longer this worker's: nothing it reports is taken
    ├── WorkerGone            a remote worker was declared dead, or has left: it has to register anew
    ├── UnknownTask           the app defines no task of that name
    ├── InvalidInput          a value that cannot be used; `field` names it
    ├── SchemaMismatch        the database's schema and this code do not fit each other
    ├── NotFound              no job, queue, cron or load of that name
    ├── JobFailed             app.result: the job ended, and not in success
    ├── WorkerStuck           app.work: handlers that do not come back keep the worker from going on
    └── ResultTimeout         app.result: the job has not ended in time (also a TimeoutError)

Each message says what happened, to what, and what to do now. Errors cross process borders, so all of them can be
pickled. `Retry`, `Snooze` and `Discard` are not errors but what a handler says about its job: see
`penstock.model.handler_signals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

__all__ = [
    "InvalidInput",
    "JobFailed",
    "LeaseLost",
    "NotFound",
    "PartitionUnavailable",
    "PenstockError",
    "QueueFull",
    "RequestTimeout",
    "ResultTimeout",
    "SchemaMismatch",
    "UnknownTask",
    "WorkerGone",
    "WorkerStuck",
]


def _restore(kind: type[PenstockError], args: tuple[Any, ...], attributes: dict[str, Any]) -> PenstockError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class PenstockError(Exception):
    """What every error of Penstock is.

    Raised by an enqueue, it has in `written` the jobs' ids by their place in the call: None where a job was not
    written, or where that is unknown. Only a call over several shards can have been written in part.
    """

    written: Sequence[int | None] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is rebuilt from its message by default, which the constructors below do not take.
        return _restore, (type(self), self.args, dict(self.__dict__))


class QueueFull(PenstockError):
    """A partition has `max_length` ready jobs; nothing was written. Enqueue again once workers have caught up."""

    def __init__(self, queue: str, max_length: int) -> None:
        super().__init__(f"queue {queue!r} is full: max_length {max_length}")
        self.queue = queue
        self.max_length = max_length


class PartitionUnavailable(PenstockError):
    """The database that holds a partition does not answer; `shard` is its number, `partition` the name.

    `outcome` is "not written" where the call certainly changed nothing, and "unknown" where it may have changed
    something: on this database or, as `written` or the message says, on others.
    """

    def __init__(self, message: str, shard: int | None = None, partition: str | None = None) -> None:
        super().__init__(message)
        self.shard = shard
        self.partition = partition
        self.outcome: Literal["unknown", "not written"] = "not written"


class RequestTimeout(PenstockError):
    """A call passed its request_timeout.

    `outcome` is "not written" where the call certainly changed nothing and may be repeated, and "unknown" where the
    answer to its COMMIT was lost: repeat it only with an idempotency key, or look first.
    """

    def __init__(self, message: str, outcome: Literal["unknown", "not written"] = "unknown") -> None:
        super().__init__(message)
        self.outcome: Literal["unknown", "not written"] = outcome


class LeaseLost(PenstockError):
    """The job was taken from this worker (rescued, cancelled or timed out): what it did counts for nothing here."""


class WorkerGone(PenstockError):
    """There is no such remote worker (any more): it was silent for longer than its lease, or it has left.

    What it held is not its own any more. Nothing was changed; register anew.
    """


class UnknownTask(PenstockError):
    """The app defines no task of that name."""


class InvalidInput(PenstockError):
    """A value that cannot be used; nothing was written. `field` names it, `problem` says what to do."""

    def __init__(self, field: str, problem: str) -> None:
        # A field may be a name the user made up: whatever it holds, the message can be printed.
        shown = field if field.isprintable() and len(field) <= 200 else f"{ascii(field)[:200]}..."
        super().__init__(f"{shown}: {problem}")
        self.field = field
        self.problem = problem


class SchemaMismatch(PenstockError):
    """The database's schema is one this code does not know."""


class NotFound(PenstockError):
    """No job, queue, cron or load of that name."""


class JobFailed(PenstockError):
    """The job ended as something else than succeeded, so it has no result."""

    def __init__(self, job_id: int, state: str, error: str | None) -> None:
        remedy = (
            f"read app.job({job_id}).failures, and app.retry({job_id}) once the cause is gone"
            if state == "failed"
            else f"it has no result; app.job({job_id}) tells more"
        )
        # Only what the error says: its traceback would stand between it and the advice.
        said = f": {error.splitlines()[0]}" if error else ""
        super().__init__(f"job {job_id} ended as {state}{said}; {remedy}")
        self.job_id = job_id
        self.state = state
        self.error = error


class WorkerStuck(PenstockError):
    """Handlers that do not come back keep a worker from going on; it gave its partitions up and ended.

    They still run in this process, and nothing in Python can end them: start the process again.
    """


class ResultTimeout(PenstockError, TimeoutError):
    """The job has not ended within the time app.result was given, or nobody could be asked whether it has.

    It is untouched and may still end.
    """

    def __init__(self, job_id: int, timeout_seconds: float, *, unanswered: str | None = None) -> None:
        super().__init__(
            f"job {job_id} has not ended within {timeout_seconds:g} s; it goes on: "
            f"wait longer, or ask app.explain({job_id})"
            if unanswered is None
            else f"whether job {job_id} has ended could not be asked within {timeout_seconds:g} s: {unanswered}"
        )
        self.job_id = job_id
        self.timeout_seconds = timeout_seconds
