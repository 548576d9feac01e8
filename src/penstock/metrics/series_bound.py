"""How many series the system's metrics have at most, however many partitions, queues and tasks there are.

Beyond the bound the partitions of a queue are told as one, those of the largest queues first, and beyond so many
queues the rest of them as one without a name: sums over series stay what they were, and so do alerts on them. A limit
of several partitions is their sum, an age the largest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from penstock.storage.inspect.system_figures import PartitionFigures

__all__ = ["MOST_PARTITIONS", "MOST_QUEUES", "MOST_TASKS", "Bounded", "bound_series"]

MOST_PARTITIONS = 2_000
MOST_QUEUES = 1_000
MOST_TASKS = 500

_SUMMED = tuple(
    name for name in PartitionFigures.__struct_fields__ if name not in ("queue", "partition", "oldest_wait_seconds")
)


class Bounded(NamedTuple):
    """The partitions that are told, each with its shard; the queues that have a name; what was folded."""

    partitions: list[tuple[int, PartitionFigures]]
    queues: frozenset[str]
    folded_partitions: int
    folded_queues: int


def bound_series(
    given: Iterable[tuple[int, PartitionFigures]], queues: Iterable[str], *, most_partitions: int = MOST_PARTITIONS,
    most_queues: int = MOST_QUEUES,
) -> Bounded:  # fmt: skip
    """What is told of these partitions and queues."""
    partitions, names = list(given), sorted(set(queues))
    named = frozenset(names[:most_queues])
    if len(partitions) <= most_partitions and len(names) <= most_queues:
        return Bounded(partitions, named, 0, 0)
    by_queue = Counter(each.queue for _, each in partitions if each.queue in named)
    folded: set[str] = set()
    left = by_queue.total()
    # Folded, a queue is one on each shard that has something of it.
    shards = Counter(queue for _, queue in {(shard, each.queue) for shard, each in partitions})
    for queue, count in by_queue.most_common():
        if left <= most_partitions:
            break
        if count > shards[queue]:
            folded.add(queue)
            left -= count - shards[queue]
    told: list[tuple[int, PartitionFigures]] = []
    together: dict[tuple[int, str], list[PartitionFigures]] = {}
    for shard, each in partitions:
        if each.queue in named and each.queue not in folded:
            told.append((shard, each))
        else:
            together.setdefault((shard, each.queue if each.queue in named else ""), []).append(each)
    told += [(shard, _fold(queue, members)) for (shard, queue), members in together.items()]
    return Bounded(told, named, sum(map(len, together.values())), len(names) - len(named))


def _fold(queue: str, members: Sequence[PartitionFigures]) -> PartitionFigures:
    """Partitions as one without a name."""
    sums = {name: _sum([getattr(each, name) for each in members]) for name in _SUMMED}
    oldest = max(each.oldest_wait_seconds for each in members)
    return msgspec.structs.replace(members[0], queue=queue, partition="", oldest_wait_seconds=oldest, **sums)


def _sum(values: Sequence[float | None]) -> float | None:
    """None where one has none: together they are not bounded."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
