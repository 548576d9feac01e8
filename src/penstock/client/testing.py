"""For users' own tests: jobs are kept in memory instead of a database, and run when the test says so.

Arguments make the same way through JSON as in production, so that what would be refused there is refused here. An
`Inline` test runs each job as it is enqueued; otherwise `drain` runs what has gathered, in order.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.client.pending import PendingJob
from penstock.errors import JobFailed, NotFound, PenstockError
from penstock.model.checks import key_from_bytes
from penstock.model.encoding import encode_result
from penstock.model.job_state import FINAL, State
from penstock.task.verdict import judge

__all__ = ["TestContext", "TestJob", "Testing"]


@dataclass(slots=True)
class TestJob:
    """A job of a test."""

    __test__ = False

    id: int
    pending: PendingJob
    state: State = State.READY
    attempt: int = 0
    result: Any = None
    error: str | None = None

    @property
    def queue(self) -> str:
        return self.pending.task.queue

    @property
    def task(self) -> str:
        return self.pending.task.name

    @property
    def args(self) -> dict[str, Any]:
        decoded: dict[str, Any] = msgspec.json.decode(self.pending.args_json)
        return decoded

    @property
    def key(self) -> str | bytes | None:
        return None if self.pending.key is None else key_from_bytes(self.pending.key)


class TestContext:
    """What a handler gets as its context in a test."""

    __test__ = False

    def __init__(self, job: TestJob) -> None:
        self.job_id = job.id
        self.attempt = job.attempt
        self.lease = 1
        self.queue = job.queue
        self.task = job.task
        self.key = job.key
        attributes = job.pending.options.attributes or {}
        self.tags: list[str] = attributes.get("tags", [])
        self.tenant: str | None = attributes.get("tenant")
        self.is_cancelled = False
        self.reported: list[tuple[float | None, str | None]] = []

    def progress(self, value: float | None = None, note: str | None = None) -> None:
        """Keep what was reported, for the test to look at."""
        self.reported.append((value, note))

    def settle(self, connection: Any, result: Any = None) -> None:
        """Nothing to settle: the job ends when its handler returns."""

    async def asettle(self, connection: Any, result: Any = None) -> None:
        """The same."""


class Testing:
    """What `app.testing()` gives. `jobs` are all jobs enqueued so far, in order."""

    __test__ = False

    def __init__(self, *, inline: bool, is_owned: Callable[[str], bool] = lambda _: False) -> None:
        self._inline = inline
        self._is_owned = is_owned
        self.jobs: list[TestJob] = []

    def enqueue(self, pending: Sequence[PendingJob]) -> list[int]:
        """Take jobs in, and run them at once where the test is inline."""
        known = {
            self._known_by(job.pending): job.id for job in self.jobs if job.pending.options.idempotency_key is not None
        }
        ids = []
        for each in pending:
            key = self._known_by(each)
            if each.options.idempotency_key is not None and key in known:
                ids.append(known[key])
                continue
            job = TestJob(len(self.jobs) + 1, each)
            known[key] = job.id
            self.jobs.append(job)
            ids.append(job.id)
            if self._inline:
                self.run(job)
        return ids

    def _known_by(self, pending: PendingJob) -> tuple[str, bytes | None, str | None]:
        """What a repeated enqueue is known by: where keys have rules, each has idempotency keys of its own."""
        queue = pending.task.queue
        return queue, pending.key if self._is_owned(queue) else None, pending.options.idempotency_key

    def drain(self) -> int:
        """Run every job that is ready, also those the handlers enqueue; how many attempts were made."""
        attempts = 0
        while waiting := [job for job in self.jobs if job.state == State.READY]:
            for job in waiting:
                self.run(job)
                attempts += 1
        return attempts

    def run(self, job: TestJob) -> None:
        """Run one attempt of a job here."""
        task = job.pending.task
        job.attempt += 1
        try:
            named = task.arguments.decode(job.pending.args_json)
            if task.arguments.context_parameter is not None:
                named[task.arguments.context_parameter] = TestContext(job)
            result = task.function(**named)
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
            job.result = msgspec.json.decode(encode_result(result))
            job.state = State.SUCCEEDED
        except Exception as error:
            verdict = judge(task, job.attempt, error, 0.5)
            job.error = verdict.error
            if verdict.end in ("retry", "snooze"):
                job.attempt -= verdict.end == "snooze"
                # A job that is put off stays so: a test moves it on with `run`, or drains it when it is due at once.
                job.state = State.READY if verdict.due_in == 0 else State.SCHEDULED
            else:
                job.state = State(verdict.end)

    def job(self, job_id: int) -> TestJob:
        """The job of that id."""
        if not 1 <= job_id <= len(self.jobs):
            raise NotFound(f"job {job_id} was not enqueued in this test")
        return self.jobs[job_id - 1]

    def result(self, job_id: int) -> Any:
        """The job's result, or its error."""
        job = self.job(job_id)
        if job.state not in FINAL:
            raise PenstockError(f"job {job.id} has not ended, it is {job.state}: call drain() or run(job) first")
        if job.state != State.SUCCEEDED:
            raise JobFailed(job.id, job.state, job.error)
        return job.result
