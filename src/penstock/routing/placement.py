"""Where a call without a key goes: whole, to the partition in which the fewest jobs wait.

A call is never split: it is written in one transaction or not at all. Asking the database for the depths at every
call would cost more than the call, so a producer remembers what it last read, adds what it has placed itself since,
and reads again when the memory is old. Producers need not agree: a depth that is a little wrong costs balance,
never a job.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["Placement", "least_loaded"]


def least_loaded(depths: Sequence[int], avoid: Collection[int] = ()) -> int:
    """The index of the smallest depth, the lowest of equals; `avoid` is passed over unless nothing else is left."""
    candidates = [index for index in range(len(depths)) if index not in avoid] or range(len(depths))
    return min(candidates, key=depths.__getitem__)


class Placement:
    """One queue's depths as a producer knows them. Times are monotonic seconds, handed in."""

    def __init__(self, partitions: int, lifetime_seconds: float = 1.0) -> None:
        self._depths = [0] * partitions
        self._lifetime_seconds = lifetime_seconds
        self._learned_at: float | None = None

    @property
    def depths(self) -> tuple[int, ...]:
        """What each partition is thought to hold."""
        return tuple(self._depths)

    def is_stale(self, at: float) -> bool:
        """Whether the depths were never read, or too long ago."""
        return self._learned_at is None or not 0 <= at - self._learned_at < self._lifetime_seconds

    def learn(self, depths: Sequence[int], at: float) -> None:
        """Take over what the database says now; it already counts what this producer wrote before."""
        self._depths = list(depths)
        self._learned_at = at

    def place(self, jobs: int, avoid: Collection[int] = ()) -> int:
        """Choose the partition for a call of so many jobs, and count them there."""
        index = least_loaded(self._depths, avoid)
        self._depths[index] += jobs
        return index

    def withdraw(self, index: int, jobs: int) -> None:
        """Uncount a call that was not written after all."""
        if index < len(self._depths):
            self._depths[index] = max(0, self._depths[index] - jobs)
