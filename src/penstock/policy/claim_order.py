"""In which order a claim tries the partitions of the queues that a worker serves.

Queues take turns, and so do the partitions of each: none waits behind a full one. A queue that gave something when it
last had its turn has one of its own. All the others have one together, and whichever of them gives something then has
its own from there on. So a thousand empty queues keep nobody waiting.

Partitions are told as spans, from a number to a number, in which no partition of another queue lies. A claim looks only
where something is ready, and so a thousand empty partitions in one span cost it nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from itertools import chain
from typing import NamedTuple, TypeAlias

__all__ = ["ClaimOrder", "PlacedPartition"]

# From the number of a partition to that of another, both included.
Span: TypeAlias = tuple[int, int]
# Whose turn it is where it is that of all queues without one of their own.
OTHERS = 0


class PlacedPartition(NamedTuple):
    """A partition, its queue, and how many there are in its database up to it, of whichever queues."""

    id: int
    queue: int
    place: int


class _Run(NamedTuple):
    """Partitions of a queue with none of another in between."""

    first: PlacedPartition
    last: PlacedPartition

    @property
    def span(self) -> Span:
        return self.first.id, self.last.id


class ClaimOrder:
    """For one worker."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._spans_of: dict[int, list[Span]] = {}
        self._queue_of: dict[int, int] = {}
        # The queues in the order of their turns, each with the partition to begin with.
        self._turns: dict[int, int] = {OTHERS: 0}
        self._whose = OTHERS
        # The spans of all queues but those that are left out.
        self._spans: tuple[Set[int], list[Span]] = frozenset(), []

    def set_partitions(self, partitions: Iterable[PlacedPartition]) -> None:
        """Make these the ones that there are."""
        self._runs, self._spans_of = [], {}
        for each in sorted(partitions):
            self._queue_of[each.id] = each.queue
            last = self._runs[-1].last if self._runs else None
            if last is not None and (last.queue, last.place + 1) == (each.queue, each.place):
                self._runs[-1] = _Run(self._runs[-1].first, each)
            else:
                self._runs.append(_Run(each, each))
        for run in self._runs:
            self._spans_of.setdefault(run.first.queue, []).append(run.span)
        self._turns = {queue: begin for queue, begin in self._turns.items() if queue in (OTHERS, *self._spans_of)}
        self._spans = frozenset(), _merge(self._runs)

    def next(self, without: Set[int]) -> list[Span]:
        """What to try next, in order, without some of the queues."""
        if without != self._spans[0]:
            self._spans = without, _merge(run for run in self._runs if run.first.queue not in without)
        spans = self._spans[1]
        for queue in list(self._turns):
            begin = self._turns.pop(queue)
            if queue in without:
                continue
            self._turns[queue] = begin
            self._whose = queue
            if queue != OTHERS:
                own = self._spans_of[queue]
                return _turn(own, begin) + _subtract(spans, own)
            busy = [each for each in self._turns if each != OTHERS and each not in without]
            if own := _subtract(spans, sorted(chain.from_iterable(self._spans_of[each] for each in busy))):
                return _turn(own, begin) + [
                    span for each in busy for span in _turn(self._spans_of[each], self._turns[each])
                ]
        return []

    def learn(self, partitions: Iterable[int]) -> None:
        """Learn which partitions gave something, in the order in which they did."""
        gave: dict[int, int] = {}
        for partition in partitions:
            # After a lost answer there may be some that no claim was told of.
            if partition in self._queue_of:
                gave.setdefault(self._queue_of[partition], partition)
        if self._whose not in gave and self._whose != OTHERS:
            self._turns.pop(self._whose, None)
        for number, (queue, partition) in enumerate(gave.items()):
            if number == 0 and self._whose == OTHERS:
                # It has had the turn, be it a queue with one of its own.
                self._turns.pop(queue, None)
                self._turns[OTHERS] = partition + 1
            self._turns[queue] = partition + 1


def _merge(runs: Iterable[_Run]) -> list[Span]:
    """The spans of these runs, in order; of those with no partition in between, one."""
    spans: list[Span] = []
    place = 0
    for first, last in runs:
        if spans and first.place == place + 1:
            spans[-1] = spans[-1][0], last.id
        else:
            spans.append((first.id, last.id))
        place = last.place
    return spans


def _turn(spans: Sequence[Span], begin: int) -> list[Span]:
    """The same, from a partition on."""
    later = [(max(first, begin), last) for first, last in spans if last >= begin]
    return later + [(first, min(last, begin - 1)) for first, last in spans if first < begin]


def _subtract(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What is left of spans without others; both are in order."""
    left: list[Span] = []
    number = 0
    for first, last in spans:
        begin = first
        while number < len(others) and others[number][0] <= last:
            other_first, other_last = others[number]
            if begin < other_first:
                left.append((begin, other_first - 1))
            begin = max(begin, other_last + 1)
            number += 1
        if begin <= last:
            left.append((begin, last))
    return left
