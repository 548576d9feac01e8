"""What a handler may know and say about the job, or the batch, that it runs, if it asks for it with a parameter named
`context`.

That parameter comes first, or has a default: only a first one can be left out of what `enqueue` takes, as type checkers
see it. A worker, a handler process and a test each give a context of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from penstock.model.trace_context import TraceContext

__all__ = ["BatchContext", "Context"]


class Context(Protocol):
    """The running job, seen from its handler."""

    @property
    def job_id(self) -> int:
        """The job's id."""

    @property
    def queue(self) -> str:
        """The queue the job belongs to."""

    @property
    def task(self) -> str:
        """The task's name."""

    @property
    def attempt(self) -> int:
        """Which attempt this is; the first is 1."""

    @property
    def lease(self) -> int:
        """The number of the lease the job runs under. It only grows, on one server: use it as a fence for writes
        elsewhere. A failover to an asynchronous standby, or a restored backup, may give numbers again.
        """

    @property
    def key(self) -> str | bytes | None:
        """The job's ordering key."""

    @property
    def tags(self) -> list[str]:
        """The job's tags."""

    @property
    def tenant(self) -> str | None:
        """The tenant the job belongs to."""

    @property
    def trace(self) -> TraceContext | None:
        """The trace context of the call that enqueued the job, or of its load; None where that was not sampled. Of a
        load only an app that traces knows it.
        """

    @property
    def is_cancelled(self) -> bool:
        """Whether the job should stop: somebody cancelled it, it timed out, or its lease is lost."""

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was told to stop, and waits for this handler."""

    def progress(self, value: float | None = None, note: str | None = None) -> None:
        """Say how far the job has come; shown by `app.job` within about a second."""

    def settle(self, connection: Any, result: Any = None) -> None:
        """Complete the job inside the handler's own transaction: it succeeds if and only if that commits."""

    async def asettle(self, connection: Any, result: Any = None) -> None:
        """The same on an asynchronous connection."""


class BatchContext(Protocol):
    """The running batch, seen from its handler."""

    @property
    def jobs(self) -> Sequence[Context]:
        """A context for each of its jobs, in their order."""

    @property
    def job_id(self) -> int:
        """The id of its first job, which stands for the batch in logs and traces."""

    @property
    def queue(self) -> str:
        """The queue the jobs belong to."""

    @property
    def task(self) -> str:
        """The task's name."""

    @property
    def attempt(self) -> int:
        """Which attempt this is: the first, unless a job runs alone."""

    @property
    def is_cancelled(self) -> bool:
        """Whether all of it should stop: each job was cancelled, or it timed out, or its leases are lost."""

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was told to stop, and waits for this handler."""

    def progress(self, value: float | None = None, note: str | None = None) -> None:
        """Say how far the batch has come; shown for each of its jobs."""
