"""A job sequence: the waiting jobs of one key, priority and key map, in the order in which they start.

A key may be a million jobs deep, so a job is four integers in an array and no object of its own: `pos`, id, rank,
and a mark. The mark's lowest bit says whether there is a handler for the job here (`HAS_HANDLER`); the eight above it
(from `BATCH_SHIFT` on) are the number of its task, where jobs of that are given to their handler together, else 0;
those from `TENANT_SHIFT` on are the number of its tenant, which is 0 where tenants do not matter.

Most jobs come in order, at the end, and leave at the head; one that comes back, or whose transaction was late, is
inserted where it belongs. Arrays are split before they grow long, so that this costs the same however many jobs wait.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from struct import Struct
from typing import Final

__all__ = [
    "AHEAD",
    "BATCH_MASK",
    "BATCH_SHIFT",
    "BEHIND",
    "HAS_HANDLER",
    "ID",
    "KNOWN",
    "MARK",
    "RANK",
    "TENANT_SHIFT",
    "JobSequence",
]

FIELDS = 4
ID, RANK, MARK = 1, 2, 3
HAS_HANDLER: Final = 1
BATCH_SHIFT: Final = 1
BATCH_MASK: Final = 255
TENANT_SHIFT: Final = 9
# Of one array: long enough that a million jobs are a few hundred arrays, short enough to shift in a few microseconds.
MOST_FIELDS = 2_048 * FIELDS
# What has left an array is cut off when it is half of it, and at least so long.
KEPT_FIELDS = 32 * FIELDS
as_bytes = Struct(f"={FIELDS}q").pack
# Where a job was put: it was there already, behind the head, or it is the head now.
KNOWN: Final = 0
BEHIND: Final = 1
AHEAD: Final = 2


class JobSequence:
    """Jobs by (`pos`, id). `first` begins with the head, at `at`; the arrays that follow are in `later`."""

    __slots__ = ("at", "epoch", "first", "later", "priority")

    def __init__(self, epoch: int, priority: int) -> None:
        self.epoch = epoch
        self.priority = priority
        self.first = array("q")
        self.at = 0
        self.later: list[array[int]] | None = None

    def add(self, pos: int, job: int, rank: int, mark: int) -> int:
        """Add a job where it belongs; one that is there already gets the rank and the mark given."""
        last = self.later[-1] if self.later else self.first
        if not last:
            last.frombytes(as_bytes(pos, job, rank, mark))
            return AHEAD
        if pos > last[-FIELDS] or (pos == last[-FIELDS] and job > last[ID - FIELDS]):
            if len(last) >= MOST_FIELDS:
                last = array("q")
                self.later = self.later or []
                self.later.append(last)
            last.frombytes(as_bytes(pos, job, rank, mark))
            return BEHIND
        return self._insert(pos, job, rank, mark)

    def is_like(self, other: JobSequence) -> bool:
        """Whether jobs of the same priority and key map wait in both: one may have been emptied before the other."""
        return self.priority == other.priority and self.epoch == other.epoch

    def ends_before(self, pos: int, job: int) -> bool:
        """Whether a job comes after all that wait here."""
        last = self.later[-1] if self.later else self.first
        return not last or (last[-FIELDS], last[ID - FIELDS]) < (pos, job)

    def append_alike(self, pos: int, jobs: range, rank: int, mark: int) -> None:
        """Put many that are alike at the end, where they belong."""
        for begin in range(0, len(jobs), MOST_FIELDS // FIELDS):
            some = jobs[begin : begin + MOST_FIELDS // FIELDS]
            entries = array("q", (pos, 0, rank, mark)) * len(some)
            entries[ID::FIELDS] = array("q", some)
            last = self.later[-1] if self.later else self.first
            if len(last) + len(entries) <= MOST_FIELDS:
                last.extend(entries)
            elif self.later is None:
                self.later = [entries]
            else:
                self.later.append(entries)

    def pop(self) -> int:
        """Take the head out."""
        first, at = self.first, self.at
        job = first[at + ID]
        at += FIELDS
        if at == len(first):
            self.first, at = self.later.pop(0) if self.later else array("q"), 0
        elif at >= KEPT_FIELDS and 2 * at >= len(first):
            del first[:at]
            at = 0
        self.at = at
        return job

    def count_alike(self, most: int) -> int:
        """How many jobs from the head on bear the head's mark, counted up to so many."""
        mark, begin, count = self.first[self.at + MARK], self.at + MARK, 0
        for chunk in (self.first, *(self.later or ())):
            for index in range(begin, len(chunk), FIELDS):
                if chunk[index] != mark or count == most:
                    return count
                count += 1
            begin = MARK
        return count

    @property
    def is_empty(self) -> bool:
        return self.at == len(self.first)

    def _insert(self, pos: int, job: int, rank: int, mark: int) -> int:
        chunks = [self.first, *(self.later or ())]
        number = bisect_left(chunks, (pos, job), key=lambda chunk: (chunk[-FIELDS], chunk[ID - FIELDS]))
        chunk, begin = chunks[number], self.at if number == 0 else 0
        indexes = range(begin, len(chunk), FIELDS)
        index = indexes[bisect_left(indexes, (pos, job), key=lambda index: (chunk[index], chunk[index + ID]))]
        if chunk[index] == pos and chunk[index + ID] == job:
            chunk[index + RANK], chunk[index + MARK] = rank, mark
            return KNOWN
        entry = array("q", (pos, job, rank, mark))
        if number == 0 and index == begin:
            if begin:
                self.at = begin - FIELDS
                chunk[self.at : begin] = entry
                return AHEAD
            chunk[:0] = entry
        else:
            chunk[index:index] = entry
        if len(chunk) > MOST_FIELDS:
            # The head is in the first half: no more than that is kept of the jobs that have left.
            half = len(chunk) // FIELDS // 2 * FIELDS
            self.later = self.later or []
            self.later.insert(number, chunk[half:])
            del chunk[half:]
        return AHEAD if number == 0 and index == begin else BEHIND
