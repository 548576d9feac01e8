"""What a process counted of the waits and run times of each queue's jobs, until upkeep writes it down once a minute.

Whoever settles jobs counts them, in its own thread, and upkeep reads, in its own: it remembers what it has written and
writes what came since, so that nothing is locked and a turn that it finds half counted is counted whole the next time.
What could not be written is in what it writes a minute later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.policy.histogram import Histogram

__all__ = ["CountedTimes", "QueueTimes"]


class CountedTimes(NamedTuple):
    """How many jobs of a queue waited, and ran, for how long: by bucket, up to the last one with anything in it."""

    queue_id: int
    waits: list[int]
    runs: list[int]


class _Times:
    __slots__ = ("run", "wait", "written_runs", "written_waits")

    def __init__(self) -> None:
        self.wait, self.run = Histogram(), Histogram()
        self.written_waits, self.written_runs = list(self.wait.counts), list(self.run.counts)


class QueueTimes:
    """Those of one database."""

    def __init__(self) -> None:
        self._by_queue: dict[int, _Times] = {}

    def add(self, queue_id: int, waits: Sequence[int], runs: Sequence[int], *, each: int = 1) -> None:
        """Count jobs of a queue, by whoever settled them; in microseconds. Each stands for so many."""
        times = self._by_queue.get(queue_id)
        if times is None:
            times = self._by_queue[queue_id] = _Times()
        if waits:
            times.wait.add_all(waits, each=each)
        if runs:
            times.run.add_all(runs, each=each)

    def unwritten(self) -> list[CountedTimes]:
        """By upkeep: what came since the last that was written, of each queue of which anything came."""
        found = []
        for queue_id, times in list(self._by_queue.items()):
            waits = _growth(times.wait.counts, times.written_waits)
            runs = _growth(times.run.counts, times.written_runs)
            if waits or runs:
                found.append(CountedTimes(queue_id, waits, runs))
        return found

    def note_written(self, counted: Sequence[CountedTimes]) -> None:
        """By upkeep: these were written."""
        for each in counted:
            times = self._by_queue[each.queue_id]
            for bucket, count in enumerate(each.waits):
                times.written_waits[bucket] += count
            for bucket, count in enumerate(each.runs):
                times.written_runs[bucket] += count


def _growth(counts: Sequence[int], written: Sequence[int]) -> list[int]:
    grown = [count - before for count, before in zip(counts, written, strict=True)]
    while grown and not grown[-1]:
        grown.pop()
    return grown
