"""How soon a worker looks for jobs again, though it is told of more.

What a producer commits wakes every worker that sleeps on its queue, and each look is a transaction. There are two cases
in which a look right away brings little:

- Others are quicker, and it finds nothing. Each such look in a row doubles the rest before the next; one that finds
  something ends it, so whoever wins is there at once the next time, too.
- Quick jobs come in bulk, faster than they are looked for, and take less time than the turns for them. Then it rests so
  long that the oldest job that it finds has waited for 5 to 10 ms. Where several workers share them, each finds younger
  ones and rests longer: together they look about as often as one.

A rest is counted from the look before it. Where jobs come one by one and rarely, it is over before the next one comes.
"""

from __future__ import annotations

from math import inf

__all__ = ["LookPace"]

SHORTEST_SECONDS, LONGEST_SECONDS = 0.001, 0.02
# Quick jobs are gathered if a look brings so many, and all that there were.
MANY_JOBS = 128
YOUNG_SECONDS, OLD_SECONDS = 0.005, 0.01
FIRST_SECONDS = 0.01
FACTOR = 1.5
# So long after the last look that brought many it does not wait to be told.
BULK_SECONDS = 0.1


class LookPace:
    """Of one worker at one database. Used by one thread; others read `next_at`."""

    def __init__(self) -> None:
        self._rest_seconds = 0.0
        self._many_at = -inf
        # Before then it does not look because it is told of something.
        self.next_at = -inf

    def is_bulk(self, now: float) -> bool:
        """Whether quick jobs come in bulk: it looks by itself, but not before the rest is over."""
        return now - self._many_at < BULK_SECONDS

    def note_all(self, jobs: int, oldest_seconds: float, now: float) -> None:
        """A look brought all that there was, so many quick jobs, of which the oldest had waited for so long."""
        was_bulk = self.is_bulk(now)
        if jobs >= MANY_JOBS:
            self._many_at = now
        if not was_bulk:
            self._rest(FIRST_SECONDS if jobs >= MANY_JOBS else 0.0, now)
        elif oldest_seconds < YOUNG_SECONDS:
            self._rest(self._rest_seconds * FACTOR, now)
        elif oldest_seconds > OLD_SECONDS:
            self._rest(self._rest_seconds / FACTOR, now)
        else:
            self._rest(self._rest_seconds, now)

    def note_found(self, now: float) -> None:
        """A look brought something else: slow jobs, or not all that there were."""
        self._many_at = -inf
        self._rest(0.0, now)

    def note_vain(self, now: float) -> None:
        """It was told of something, or jobs come in bulk; it looked and found nothing."""
        self._rest(max(self._rest_seconds * 2, SHORTEST_SECONDS), now)

    def _rest(self, seconds: float, now: float) -> None:
        self._rest_seconds = min(seconds, LONGEST_SECONDS)
        self.next_at = now + self._rest_seconds
