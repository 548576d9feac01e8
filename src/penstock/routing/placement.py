"""Where a call without a key goes: whole, to the partition in which the fewest jobs wait.

A call that is ready is placed by what is ready or runs there: what is due next month does not keep today's work away.
One that is delayed, or waits for other jobs, is placed by everything that will want to run there, or a thousand such
calls would all go to the partition that is empty now.

A call is never split: it is written in one transaction or not at all. Asking the database for the depths at every
call would cost more than the call, so a producer remembers what it last read, adds what it has placed itself since,
and reads again when the memory is old. Producers need not agree: a depth that is a little wrong costs balance,
never a job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

__all__ = ["Depth", "Placement", "least_loaded"]


class Depth(NamedTuple):
    """Of a partition: jobs ready or running, and with them those that are delayed or wait for others."""

    opened: int
    expected: int


_EMPTY = Depth(0, 0)


def least_loaded(depths: Sequence[int], avoid: Collection[int] = ()) -> int:
    """The index of the smallest depth, the lowest of equals; `avoid` is passed over unless nothing else is left."""
    candidates = [index for index in range(len(depths)) if index not in avoid] or range(len(depths))
    return min(candidates, key=depths.__getitem__)


class Placement:
    """The depths of partitions as a producer knows them, by the partitions' ids; one never read counts as empty."""

    def __init__(self) -> None:
        self._depths: dict[int, Depth] = {}

    def depths(self, partitions: Sequence[int]) -> list[Depth]:
        """What each partition is thought to hold."""
        return [self._depths.get(partition, _EMPTY) for partition in partitions]

    def learn(self, depths: Mapping[int, Depth]) -> None:
        """Take over what a database says now; it already counts what this producer wrote before."""
        self._depths.update(depths)

    def place(self, partitions: Sequence[int], jobs: int, *, is_ready: bool = True) -> int:
        """Choose one of the partitions for a call of so many jobs, the first of equals, and count them there."""
        depths, by = self._depths, 0 if is_ready else 1
        partition = min(partitions, key=lambda each: depths.get(each, _EMPTY)[by])
        self._add(partition, jobs, is_ready=is_ready)
        return partition

    def withdraw(self, partition: int, jobs: int, *, is_ready: bool = True) -> None:
        """Uncount a call that was not written after all."""
        self._add(partition, -jobs, is_ready=is_ready)

    def _add(self, partition: int, jobs: int, *, is_ready: bool) -> None:
        opened, expected = self._depths.get(partition, _EMPTY)
        self._depths[partition] = Depth(max(0, opened + jobs * is_ready), max(0, expected + jobs))
