"""A claimed job: one that a worker has, from the claim, or its owner's choice, until its end has been settled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from penstock.clock import ticks
from penstock.storage.work.leases import Lease, Stored
from penstock.task.definition import TaskDefinition
from penstock.task.verdict import Verdict

if TYPE_CHECKING:
    from penstock.worker.claimed_run import ClaimedRun

__all__ = ["ClaimedBatch", "ClaimedJob", "form_batches", "jobs_of"]


class ClaimedJob(msgspec.Struct, gc=False, eq=False):
    """Written by one thread at a time: the conductor, then whoever runs it, then the conductor again.

    There are many thousands a second, and most end well. A struct is made quickly, and reading what it has costs no
    search. The garbage collector does not look at it, which would cost more than making it: what refers to a job that
    the job refers to (what interrupts it, its run) lets go of it when it has ended.
    """

    lease: Lease
    task: TaskDefinition
    # As it is stored.
    id: int
    args: str
    key: bytes | None
    attributes: str | None
    # Nanoseconds of the performance counter; 0 while it has not started.
    started: int = 0
    ended: int = 0
    # Nanoseconds after which it must not start any more; 0 where its queue has no max_wait.
    expires_at: int = 0
    result: bytes | None = None
    # None once ended: it succeeded.
    verdict: Verdict | None = None
    is_cancelled: bool = False
    # Taken away from its handler (timed out, lease lost): nothing that the handler still does counts.
    is_abandoned: bool = False
    # Settled already, in its handler's transaction.
    is_settled: bool = False
    # Whether context.settle asked to split the job off into a lease of its own, which may be done from then on; whether
    # it waits for the answer; and that lease, once it is known.
    is_split: bool = False
    is_splitting: bool = False
    split_lease: int | None = None
    # Locked while a job is taken away, or asks for that lease: only one of them is done. One lock for all jobs, as both
    # are rare.
    taking_away: ClassVar[threading.Lock] = threading.Lock()
    # Ran past its timeout after it was split off: its end is written without waiting for its handler.
    is_late: bool = False
    # Stops a handler that can be stopped: an async one, one in a process.
    interrupt: Callable[[], None] | None = None
    # The jobs that this stands for: a batch, which the handler is given together, or a run.
    members: list[ClaimedJob] | None = None
    # The run it is in.
    run: ClaimedRun | None = None

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


class ClaimedBatch(ClaimedJob, gc=True):
    """Stands for jobs of one task that their handler is given together, in a backlog and in a slot: it is taken,
    started and timed as one job is. Each of its members has an end of its own. Id and lease are the first one's.
    """

    members: list[ClaimedJob] = msgspec.field(default_factory=list)

    @classmethod
    def of(cls, members: list[ClaimedJob]) -> ClaimedBatch:
        """A batch of these."""
        first = members[0]
        for job in members:
            job.lease.together = len(members)
        return cls(first.lease, first.task, first.id, first.args, first.key, first.attributes, members=members)

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
            formed.append(ClaimedBatch.of([job]))
        elif members := leased.pop((lease.partition_id, lease.batch, job.task.name), None):
            formed.append(ClaimedBatch.of(members))
    return formed


def jobs_of(
    lease: Lease, rows: Stored, tasks: Mapping[str, TaskDefinition], max_wait: float | None
) -> list[ClaimedJob]:
    """The jobs of a new lease, as they were read."""
    base = lease.range * 1024
    if lease.task:
        task = tasks[lease.task]
        jobs = [
            ClaimedJob(lease, task, row[0], row[1], row[2], row[3])
            for row in [rows[base + position] for position in lease.positions]
        ]
    else:
        stored = [rows[base + position] for position in lease.positions]
        jobs = [ClaimedJob(lease, tasks[row[4]], *row[:4]) for row in stored]
    if max_wait is not None and lease.attempt == 1 and lease.rescues == 0:
        expires_at = ticks() + int((max_wait - lease.waited_seconds) * 1e9)
        for job in jobs:
            job.expires_at = expires_at
    return jobs
