"""Time and randomness, in the one place where Penstock takes them.

Whoever needs either is given a `Clock`, or uses the one named `system`. A test passes its own: `ManualClock` stands
still until it is told to move, its sleepers do not sleep, and its randomness repeats. Times that are *stored* are
the database's, never these: two machines need not agree on the time for jobs to be safe.
"""

from __future__ import annotations

import os
import random
import time
from datetime import UTC, datetime, timedelta

__all__ = ["Clock", "ManualClock", "system", "ticks"]

# Nanoseconds that only grow, for the paths on which a method call would show: all that a worker times, leases too.
ticks = time.perf_counter_ns
_system_random = random.SystemRandom()


class Clock:
    """This machine's time and randomness."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that only grow; for measuring how long something took or may take."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        time.sleep(seconds)

    def random_unit(self) -> float:
        """A number from 0 up to, but not including, 1. The system's, so no two workers share a row of them."""
        return _system_random.random()

    def random_token(self) -> int:
        """63 random bits, as PostgreSQL's bigint can hold them: for telling one call from every other.

        The system's, not the program's: one that seeds its own, or is forked, would repeat them.
        """
        return int.from_bytes(os.urandom(8), "big") >> 1


class ManualClock(Clock):
    """A clock that stands still: `sleep` and `advance` move it, and nothing else does."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC), seed: int = 0) -> None:
        self._start = start
        self._elapsed_seconds = 0.0
        self._random = random.Random(seed)  # noqa: S311  (repeats on purpose)

    def advance(self, seconds: float) -> None:
        """Let that much time pass."""
        self._elapsed_seconds += seconds

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_seconds)

    def monotonic(self) -> float:
        return self._elapsed_seconds

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def random_unit(self) -> float:
        return self._random.random()

    def random_token(self) -> int:
        return self._random.getrandbits(63)


system = Clock()
