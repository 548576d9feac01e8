"""A histogram: how many values fell between which bounds. Two of them are added bucket by bucket.

Waits and run times of each minute are kept with `TIME_BOUNDS`, ten buckets for each power of ten from a tenth of a
millisecond to eleven days. A percentile is read off the bucket that it falls into, by how far into it: it is off by a
quarter at most, but below that tenth.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, zip_longest

__all__ = ["TIME_BOUNDS", "Histogram", "percentile", "sum_counts"]

# The upper bounds of the buckets, in microseconds. Stored counts mean these: where they change, what is stored is void.
TIME_BOUNDS = tuple(round(100 * 10 ** (n / 10)) for n in range(101))


class Histogram:
    """How many values fell into each bucket, the last of which has no bound, and their sum."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[int] = TIME_BOUNDS) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def add_all(self, values: Sequence[int], *, until: int | None = None, each: int = 1) -> None:
        """Take in several; where `until` is given, how much each of them lacks to it. Each stands for so many."""
        bounds = self._bounds
        low, high, total = min(values), max(values), sum(values)
        if until is not None:
            low, high, total = until - high, until - low, until * len(values) - total
        self.total += total * each
        first, last = bisect_left(bounds, low), bisect_left(bounds, high)
        if first == last:
            # So it is nearly always: what was claimed together has waited and runs for about as long.
            self.counts[first] += len(values) * each
            return
        values = sorted(values if until is None else [until - value for value in values])
        begin = 0
        for bucket in range(first, last):
            end = bisect_right(values, bounds[bucket], begin)
            self.counts[bucket] += (end - begin) * each
            begin = end
        self.counts[last] += (len(values) - begin) * each


def sum_counts(histograms: Sequence[Sequence[int]]) -> list[int]:
    """The counts of several histograms together; one that is shorter lacks buckets at its end, with nothing in them."""
    return [sum(counts) for counts in zip_longest(*histograms, fillvalue=0)]


def percentile(counts: Sequence[int], share: float) -> float | None:
    """In seconds, the time that this share of the counted ones did not exceed; None where nothing was counted."""
    sums = list(accumulate(counts))
    if not sums or not sums[-1]:
        return None
    rank = share * sums[-1]
    bucket = bisect_left(sums, rank)
    if bucket >= len(TIME_BOUNDS):
        return TIME_BOUNDS[-1] / 1e6
    into = 1 - (sums[bucket] - rank) / counts[bucket]
    high = TIME_BOUNDS[bucket] / 1e6
    # As buckets grow tenfold in ten steps, so does the time within one; the first begins at nothing.
    seconds = high * 10 ** ((into - 1) / 10) if bucket else high * into
    return float(f"{seconds:.3g}")
