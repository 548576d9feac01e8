"""The waiting jobs of one key, priority and map, in the order in which they start.

A key may be a million jobs deep, so a job is four integers in an array and no object of its own: position, id, rank,
and a mark (its tenant's number, and whether there is a handler for it). Most jobs come in order, at the end, and leave
at the head; one that comes back, or whose transaction was late, is put in its place. Arrays are split before they grow
long, so that this costs the same however many jobs wait.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

__all__ = ["Lane"]

FIELDS = 4
ID, RANK, MARK = 1, 2, 3
# Of one array: long enough that a million jobs are a thousand arrays, short enough to shift in a microsecond or two.
MOST_FIELDS = 2_048 * FIELDS
# What has left an array is cut off when it is half of it, and at least so long.
KEPT_FIELDS = 32 * FIELDS


class Lane:
    """Jobs by (position, id). `first` begins with the head, at `at`; the arrays that follow are in `later`."""

    __slots__ = ("at", "epoch", "first", "later", "priority")

    def __init__(self, epoch: int, priority: int) -> None:
        self.epoch = epoch
        self.priority = priority
        self.first = array("q")
        self.at = 0
        self.later: list[array[int]] | None = None

    def add(self, pos: int, job: int, rank: int, mark: int) -> bool:
        """Put a job in its place; False where it was there already (its rank and mark are then as given)."""
        last = self.later[-1] if self.later else self.first
        if not last or pos > last[-FIELDS] or (pos == last[-FIELDS] and job > last[ID - FIELDS]):
            if len(last) >= MOST_FIELDS:
                last = array("q")
                self.later = self.later or []
                self.later.append(last)
            last.extend((pos, job, rank, mark))
            return True
        return self._insert(pos, job, rank, mark)

    def pop(self) -> int:
        """Take the head out."""
        first = self.first
        job = first[self.at + ID]
        self.at = at = self.at + FIELDS
        if at == len(first):
            if self.later:
                self.first, self.at = self.later.pop(0), 0
        elif at >= KEPT_FIELDS and 2 * at >= len(first):
            del first[:at]
            self.at = 0
        return job

    @property
    def is_empty(self) -> bool:
        return self.at == len(self.first)

    def _insert(self, pos: int, job: int, rank: int, mark: int) -> bool:
        chunks = [self.first, *(self.later or ())]
        number = bisect_left(chunks, (pos, job), key=lambda chunk: (chunk[-FIELDS], chunk[ID - FIELDS]))
        chunk, begin = chunks[number], self.at if number == 0 else 0
        index = bisect_left(
            range(begin, len(chunk), FIELDS), (pos, job), key=lambda place: (chunk[place], chunk[place + ID])
        )
        place = begin + index * FIELDS
        if chunk[place] == pos and chunk[place + ID] == job:
            chunk[place + RANK], chunk[place + MARK] = rank, mark
            return False
        if place == begin and begin:
            self.at -= FIELDS
            chunk[self.at : begin] = array("q", (pos, job, rank, mark))
            return True
        chunk[place:place] = array("q", (pos, job, rank, mark))
        if len(chunk) > MOST_FIELDS:
            if number == 0:
                del chunk[: self.at]
                self.at = 0
            half = len(chunk) // FIELDS // 2 * FIELDS
            self.later = self.later or []
            self.later.insert(number, chunk[half:])
            del chunk[half:]
        return True
