"""A claimed job: one that a worker has, from the claim, or its owner's choice, until its end has been settled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.clock import ticks
from penstock.storage.work.leases import Lease, LeasedJob, Stored
from penstock.task.definition import TaskDefinition
from penstock.task.verdict import Verdict

if TYPE_CHECKING:
    from penstock.worker.claimed_run import ClaimedRun

__all__ = ["ClaimedBatch", "ClaimedJob", "form_batches", "jobs_of"]


class ClaimedJob:
    """Written by one thread at a time: the conductor, then whoever runs it, then the conductor again.

    Most jobs end well and fast: what they share are attributes of the class, so that making one costs little.
    """

    # Nanoseconds of the performance counter; 0 while it has not started.
    started = 0
    ended = 0
    # Nanoseconds after which it must not start any more; 0 where its queue has no max_wait.
    expires_at = 0
    result: bytes | None = None
    # None once ended: it succeeded.
    verdict: Verdict | None = None
    is_cancelled = False
    # Taken away from its handler (timed out, lease lost): nothing that the handler still does counts.
    is_abandoned = False
    # Settled already, in its handler's transaction.
    is_settled = False
    # Whether context.settle asked to split the job off into a lease of its own, which may be done from then on; whether
    # it waits for the answer; and that lease, once it is known.
    is_split = False
    is_splitting = False
    split_lease: int | None = None
    # Locked while a job is taken away, or asks for that lease: only one of them is done. One lock for all jobs, as both
    # are rare.
    taking_away: ClassVar[threading.Lock] = threading.Lock()
    # Ran past its timeout after it was split off: its end is written without waiting for its handler.
    is_late = False
    # Stops a handler that can be stopped: an async one, one in a process.
    interrupt: Callable[[], None] | None = None
    # The jobs that this stands for: a batch, which the handler is given together, or a run.
    members: list[ClaimedJob] | None = None
    # The run it is in.
    run: ClaimedRun | None = None

    def __init__(self, lease: Lease, task: TaskDefinition, stored: LeasedJob) -> None:
        self.lease = lease
        self.task = task
        self.id: int = stored[0]
        self.args: str = stored[1]
        self._stored = stored

    @property
    def key(self) -> bytes | None:
        key: bytes | None = self._stored[2]
        return key

    @property
    def attributes(self) -> str | None:
        attributes: str | None = self._stored[3]
        return attributes

    @property
    def end(self) -> str:
        """How it ended."""
        return "succeeded" if self.verdict is None else self.verdict.end

    @property
    def log_fields(self) -> dict[str, Any]:
        """What a record of the log about it has."""
        task = self.task
        return {"job_id": self.id, "queue": task.queue, "task": task.name, "attempt": self.lease.attempt}

    @property
    def described(self) -> str:
        """What a line of the log calls it."""
        return f"job {self.id} ({self.task.queue}/{self.task.name})"

    def log_fields_while_running(self) -> dict[str, Any] | None:
        """The same; None once its handler has ended."""
        return self.log_fields if self.ended == self.started else None

    @property
    def position(self) -> int:
        """Its position in its range."""
        return self.id & 1023


class ClaimedBatch(ClaimedJob):
    """Stands for jobs of one task that their handler is given together, in a backlog and in a slot: it is taken,
    started and timed as one job is. Each of its members has an end of its own. Id and lease are the first one's.
    """

    members: list[ClaimedJob]

    def __init__(self, members: list[ClaimedJob]) -> None:
        first = members[0]
        super().__init__(first.lease, first.task, first._stored)
        self.members = members
        for job in members:
            job.lease.together = len(members)

    @property
    def log_fields(self) -> dict[str, Any]:
        return {**super().log_fields, "jobs": len(self.members)}

    @property
    def described(self) -> str:
        task = self.task
        return f"batch of {len(self.members)} ({task.queue}/{task.name}), the first is job {self.id},"

    def interrupt_if_unwanted(self) -> None:
        """Stop the handler if nobody wants any of the jobs any more."""
        interrupt = self.interrupt
        if interrupt is not None and all(job.is_cancelled for job in self.members):
            interrupt()


def form_batches(jobs: Sequence[ClaimedJob]) -> list[ClaimedJob]:
    """The same, in which those that were leased as one batch have become one; a job that is alone is a batch too, where
    its handler takes several.
    """
    leased: dict[tuple[int, int, str], list[ClaimedJob]] = {}
    for job in jobs:
        if job.lease.batch is not None:
            leased.setdefault((job.lease.partition_id, job.lease.batch, job.task.name), []).append(job)
    formed: list[ClaimedJob] = []
    for job in jobs:
        lease = job.lease
        if job.task.batch is None:
            formed.append(job)
        elif lease.batch is None:
            formed.append(ClaimedBatch([job]))
        elif members := leased.pop((lease.partition_id, lease.batch, job.task.name), None):
            formed.append(ClaimedBatch(members))
    return formed


def jobs_of(
    lease: Lease, rows: Stored, tasks: Mapping[str, TaskDefinition], max_wait: float | None
) -> list[ClaimedJob]:
    """The jobs of a new lease, as they were read."""
    stored = [rows[lease.range * 1024 + position] for position in lease.positions]
    if lease.task:
        task = tasks[lease.task]
        jobs = [ClaimedJob(lease, task, row) for row in stored]
    else:
        jobs = [ClaimedJob(lease, tasks[row[4]], row) for row in stored]
    if max_wait is not None and lease.attempt == 1 and lease.rescues == 0:
        expires_at = ticks() + int((max_wait - lease.waited_seconds) * 1e9)
        for job in jobs:
            job.expires_at = expires_at
    return jobs
