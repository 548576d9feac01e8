"""Where a call without a key goes: whole, to the partition in which the fewest jobs wait.

A call is never split: it is written in one transaction or not at all. Asking the database for the depths at every
call would cost more than the call, so a producer remembers what it last read, adds what it has placed itself since,
and reads again when the memory is old. Producers need not agree: a depth that is a little wrong costs balance,
never a job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

__all__ = ["Placement", "least_loaded"]


def least_loaded(depths: Sequence[int], avoid: Collection[int] = ()) -> int:
    """The index of the smallest depth, the lowest of equals; `avoid` is passed over unless nothing else is left."""
    candidates = [index for index in range(len(depths)) if index not in avoid] or range(len(depths))
    return min(candidates, key=depths.__getitem__)


class Placement:
    """The depths of partitions as a producer knows them, by the partitions' ids; one never read counts as empty."""

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}

    def depths(self, partitions: Sequence[int]) -> list[int]:
        """What each partition is thought to hold."""
        return [self._depths.get(partition, 0) for partition in partitions]

    def learn(self, depths: Mapping[int, int]) -> None:
        """Take over what a database says now; it already counts what this producer wrote before."""
        self._depths.update(depths)

    def place(self, partitions: Sequence[int], jobs: int) -> int:
        """Choose one of the partitions for a call of so many jobs, the first of equals, and count them there."""
        partition = min(partitions, key=lambda each: self._depths.get(each, 0))
        self._depths[partition] = self._depths.get(partition, 0) + jobs
        return partition

    def withdraw(self, partition: int, jobs: int) -> None:
        """Uncount a call that was not written after all."""
        self._depths[partition] = max(0, self._depths.get(partition, 0) - jobs)
