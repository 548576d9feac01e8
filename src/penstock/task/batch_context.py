"""The context of a batch, made of its jobs' contexts, whatever runs them: a worker, a handler process, a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from penstock.errors import InvalidInput
from penstock.task.context import Context

__all__ = ["JobsContext", "cannot_settle"]


class JobsContext:
    """A `BatchContext`; in what it does not ask all of them, the first job stands for the batch."""

    def __init__(self, jobs: Sequence[Context]) -> None:
        self.jobs = jobs
        self.job_id = jobs[0].job_id
        self.queue = jobs[0].queue
        self.task = jobs[0].task
        self.attempt = jobs[0].attempt

    @property
    def is_cancelled(self) -> bool:
        return all(job.is_cancelled for job in self.jobs)

    @property
    def is_stopping(self) -> bool:
        return self.jobs[0].is_stopping

    def progress(self, value: float | None = None, note: str | None = None) -> None:
        for job in self.jobs:
            job.progress(value, note)

    # Not of the protocol, so that type checkers refuse it, too.
    def settle(self, connection: Any, result: Any = None) -> NoReturn:
        """Refused."""
        raise cannot_settle(self.job_id)

    async def asettle(self, connection: Any, result: Any = None) -> NoReturn:
        """Refused."""
        raise cannot_settle(self.job_id)


def cannot_settle(job_id: int) -> InvalidInput:
    """The error where a job of a batch is to be settled."""
    return InvalidInput(
        "context",
        f"job {job_id} is in a batch, whose jobs end when the handler returns: it cannot be settled before. "
        "Leave settle out, or declare the task without batch=",
    )
