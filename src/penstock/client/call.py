"""One call of a producer: its jobs, their ids to be, and the writes that it is planned as."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.client.pending import PendingJob, PendingRows
from penstock.deadline import Deadline
from penstock.errors import InvalidInput
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.enqueue.job_group import JobGroup
from penstock.storage.enqueue.write import is_few

__all__ = ["Call", "PlannedWrite", "Waves", "order_in_waves"]


@dataclass(slots=True)
class PlannedWrite:
    """What a call writes on one database, in one transaction. `entries` are the queues of its jobs, by id.

    What a call of one job is asked every time is noted as groups are added; the rest is worked out when it is asked.
    """

    shard: int
    groups: list[JobGroup] = field(default_factory=list)
    entries: dict[int, QueueEntry] = field(default_factory=dict)
    # Whether one statement writes it.
    is_few: bool = False
    # Whether some of its jobs wait for others.
    has_children: bool = False
    # Whether a queue of its jobs bounds the length of its partitions, and whether these were looked at already.
    has_max_length: bool = False
    is_checked: bool = False

    def add(self, entry: QueueEntry, group: JobGroup) -> None:
        """Take in jobs of a queue."""
        self.groups.append(group)
        self.entries[entry.id] = entry
        self.is_few = is_few(self.groups)
        if group.parents:
            self.has_children = True
        if entry.rules.max_length is not None:
            self.has_max_length = True

    @property
    def is_free(self) -> bool:
        """Whether some of its jobs may be written on another database as well."""
        return not all(_bindings(self.groups))

    @property
    def is_bound(self) -> bool:
        """Whether some of its jobs may not: they have a key or an idempotency key."""
        return any(_bindings(self.groups))

    @property
    def indexes(self) -> list[int]:
        """Which jobs of the call they are, in order."""
        return sorted(index for group in self.groups for index in group.indexes)

    @property
    def job_count(self) -> int:
        """How many jobs they are."""
        return sum(len(group.args) for group in self.groups)

    def child_ids(self, ids: Sequence[int]) -> list[int]:
        """The ids of those that wait for others; `ids` are those of the call."""
        return [ids[group.indexes[row]] for group in self.groups for row in group.parents or ()]

    @property
    def partitions(self) -> list[str]:
        """The names of its partitions."""
        found = ((self.entries[group.destination.queue_id], group.destination.partition_id) for group in self.groups)
        names = (entry.partition_names[entry.partition_ids.index(partition)] for entry, partition in found)
        return list(dict.fromkeys(names))


# The writes of a call, in the order of time: those of one wave are carried out side by side, before the next begins.
Waves = list[list[PlannedWrite]]


@dataclass(slots=True)
class Call:
    """One call. `ids` are filled in as its jobs are written; `done` is what was."""

    pending: Sequence[PendingJob] | PendingRows
    ids: list[int]
    deadline: Deadline
    done: list[PlannedWrite] = field(default_factory=list)

    @property
    def jobs(self) -> Sequence[PendingJob]:
        """Its jobs, by index."""
        return self.pending.to_jobs() if isinstance(self.pending, PendingRows) else self.pending

    @property
    def written(self) -> list[int | None]:
        """The ids of what is written, by index; None for what is not."""
        written: list[int | None] = [None] * len(self.ids)
        for write in self.done:
            for index in write.indexes:
                written[index] = self.ids[index]
        return written


def order_in_waves(writes: list[PlannedWrite]) -> Waves:
    """The writes in an order in which each comes after those that hold parents of its jobs."""
    shard_of = {index: write.shard for write in writes for group in write.groups for index in group.indexes}
    needs = {
        write.shard: {
            shard_of[index]
            for group in write.groups
            for parents in (group.parents or {}).values()
            for index in parents.earlier
            if shard_of.get(index, write.shard) != write.shard
        }
        for write in writes
    }
    waves: Waves = []
    ahead: set[int] = set()
    while len(ahead) < len(writes):
        wave = [write for write in writes if write.shard not in ahead and needs[write.shard] <= ahead]
        if not wave:
            shards = " and ".join(str(write.shard) for write in writes if write.shard not in ahead)
            raise InvalidInput(
                "after",
                f"jobs of this call on shards {shards} would have to be written before each other: make two calls, the "
                "parents in the first, and pass their ids",
            )
        waves.append(wave)
        ahead |= {write.shard for write in wave}
    return waves


def _bindings(groups: Sequence[JobGroup]) -> Iterator[bool]:
    """For each job, whether a key or an idempotency key binds it to its database."""
    for group in groups:
        given = None if group.idempotency_keys is None else group.idempotency_keys.given
        for row in range(len(group.args)):
            has_key = group.keys is not None and group.keys[row] is not None
            yield has_key or (given is not None and given[row] is not None)
