"""The jobs of a call, as they are written: in groups of one destination, each a set of parallel columns.

A group becomes ranges of at most 1,024 jobs each, in the call's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

__all__ = ["RANGE", "Destination", "EarlierJob", "IdempotencyKeys", "JobGroup", "NewRange", "Parents", "split"]

RANGE = 1024


class Destination(NamedTuple):
    """What the jobs of one range have in common: where they go, and when.

    A queue with an owner has ranges of several tasks: there `task` is empty, and each job names its own. `epoch` is the
    key map by which their partition was chosen; it must still be the queue's when they are written. On other queues it
    is None. `delay`, instead of `run_at`, is in seconds from when the call is written, by the database's clock.
    """

    queue_id: int
    partition_id: int
    priority: int
    task: str
    run_at: datetime | None = None
    delay: float | None = None
    epoch: int | None = None

    @property
    def is_owned(self) -> bool:
        """Whether the queue has an owner."""
        return self.epoch is not None

    def due_at(self, now: datetime) -> datetime | None:
        """When its jobs are due, if they are written now; None: at once."""
        return self.run_at if self.delay is None else now + timedelta(seconds=self.delay)


@dataclass(frozen=True, slots=True)
class EarlierJob:
    """A parent in the same call, by its index there: it has no id before the call is written."""

    index: int


@dataclass(slots=True)
class Parents:
    """What a job waits for, in the order given: stored jobs by their ids, and earlier jobs of its own call."""

    jobs: Sequence[int | EarlierJob]
    on_parent_failure: str = "cancel"

    @property
    def stored(self) -> list[int]:
        """The ids of those that are not of the same call."""
        return [job for job in self.jobs if not isinstance(job, EarlierJob)]

    @property
    def earlier(self) -> list[int]:
        """The indexes of those that are of the same call."""
        return [job.index for job in self.jobs if isinstance(job, EarlierJob)]

    def ids(self, call_ids: Sequence[int]) -> list[int]:
        """The ids of all; `call_ids` are those that the jobs of the call were given."""
        return [call_ids[job.index] if isinstance(job, EarlierJob) else job for job in self.jobs]


@dataclass(slots=True)
class IdempotencyKeys:
    """The idempotency keys of a group's jobs, None for a job without one.

    `epoch` is the key map that says on which database they are remembered; it must still be the queue's when they are
    written (None: whatever map it has). Those that were found on another database are in `holders`: by the key as it is
    stored, the job that has it. Those of jobs that are unique while they wait are in `unique`.
    """

    given: list[str | None]
    epoch: int | None = None
    unique: frozenset[str | None] = frozenset()
    holders: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class JobGroup:
    """Jobs of one call that have the same destination.

    `indexes` tells which jobs of the call they are. The columns are parallel to it, an element for each job, a *row*; a
    column that is None says that no job has any of it. `tasks` is there where the queue has an owner. `parents` are by
    row, of those jobs that wait for others.
    """

    destination: Destination
    indexes: Sequence[int]
    args: list[bytes]
    keys: list[bytes | None] | None = None
    attributes: list[dict[str, Any] | None] | None = None
    tasks: list[str] | None = None
    idempotency_keys: IdempotencyKeys | None = None
    parents: dict[int, Parents] | None = None

    def task_of(self, row: int) -> str:
        """The task of one of its jobs."""
        return self.tasks[row] if self.tasks else self.destination.task

    def rows(self) -> list[JobGroup]:
        """Each of its jobs as a group of its own; they have no idempotency keys and no parents."""
        return [
            JobGroup(
                self.destination,
                [index],
                [self.args[row]],
                None if self.keys is None else [self.keys[row]],
                None if self.attributes is None else [self.attributes[row]],
                None if self.tasks is None else [self.tasks[row]],
            )
            for row, index in enumerate(self.indexes)
        ]

    @property
    def is_ready(self) -> bool:
        """Whether its jobs wait for no time and no others."""
        to = self.destination
        return to.run_at is None and not to.delay and not self.parents

    def stored_idempotency_key(self, row: int) -> str | None:
        """What must be unique in the queue: with an owner, the key is so for each ordering key."""
        key = None if self.idempotency_keys is None else self.idempotency_keys.given[row]
        if key is None or not self.destination.is_owned:
            return key
        ordering = self.keys[row] if self.keys else None
        return f"{(ordering or b'').hex()}:{key}"


@dataclass(slots=True)
class NewRange:
    """Up to 1,024 jobs of a group, from row `low` to before `high`: they become one range.

    `positions` are those that are written. A job whose idempotency key another one has leaves a hole.
    """

    group: JobGroup
    low: int
    high: int
    number: int = 0
    positions: Sequence[int] = ()

    def __post_init__(self) -> None:
        self.positions = range(self.high - self.low)

    @property
    def first_id(self) -> int:
        """The id of its position 0."""
        return self.number * RANGE

    @property
    def indexes(self) -> Sequence[int]:
        """Which jobs of the call they are."""
        return self.group.indexes[self.low : self.high]


def split(groups: Iterable[JobGroup]) -> list[NewRange]:
    """The ranges that groups become, in order."""
    return [
        NewRange(group, low, min(low + RANGE, len(group.args)))
        for group in groups
        for low in range(0, len(group.args), RANGE)
    ]
