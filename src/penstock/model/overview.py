"""The whole system at one look, for whoever watches it: figures of every queue, and what they need to go on.

It is read by one statement on each database that costs the same at any backlog, so it may be asked again and again.
Totals count since a queue was made: what came and went in between two looks is their difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Overview", "QueueOverview", "UnservedTask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnservedTask:
    """A task that waits, and that no worker that is alive has a handler for."""

    task: str
    waited_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOverview:
    """A queue, all its partitions together. `limit` is how many may run in them, `workers` how many serve it.

    `halted_keys` wait for a person, the first for `halted_seconds`.
    """

    queue: str
    paused: bool = False
    partitions: int = 0
    waiting: int = 0
    running: int = 0
    limit: int | None = None
    scheduled: int = 0
    blocked: int = 0
    dead: int = 0
    halted_keys: int = 0
    halted_seconds: float = 0.0
    oldest_wait_seconds: float = 0.0
    workers: int = 0
    unserved: list[UnservedTask] = field(default_factory=list)
    total_enqueued: int = 0
    total_completed: int = 0
    total_failed: int = 0
    total_cancelled: int = 0
    total_discarded: int = 0
    total_expired: int = 0

    @property
    def ended(self) -> int:
        """How many have left the queue since it was made, in whatever way."""
        ends = (self.total_completed, self.total_failed, self.total_cancelled, self.total_discarded, self.total_expired)
        return sum(ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Every queue, by name, and what concerns none of them alone.

    `slots` is how many jobs the workers may run at once, `overdue_seconds` for how long a job has been due without
    being made ready, `failing_duties` how many duties of upkeep fail again and again. `unavailable` are the shards that
    did not answer, `read_only` those that take no writes.
    """

    queues: list[QueueOverview]
    workers: int = 0
    silent_workers: int = 0
    slots: int = 0
    overdue_seconds: float = 0.0
    failing_duties: int = 0
    unavailable: list[str] = field(default_factory=list)
    read_only: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[QueueOverview]:
        return iter(self.queues)
