"""How often jobs may start: a bucket of tokens that fills at a steady rate.

A start takes a token; the bucket holds `burst` of them at most, a second's worth and never less than one. All there is
to remember of a bucket is the instant at which it would be full again: the same number the database keeps for the
partitions it gates itself. Seen from any instant, no more than burst + rate * time jobs start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor

__all__ = ["Bucket", "KeyBuckets", "Rate"]

FEWEST_BEFORE_A_SWEEP = 1_024
# A token that is short by less than this is whole. It is paid for: the bucket is full so much later.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Rate:
    """So many starts a second."""

    per_second: float

    @property
    def burst(self) -> int:
        """How many may start at once after an idle time."""
        return max(1, floor(self.per_second))

    def full_at_if_empty(self, now: float) -> float:
        """When a bucket is full that has nothing in it now."""
        return now + self.burst / self.per_second

    def next_at(self, full_at: float) -> float:
        """When there is a token, or since when there has been one."""
        return full_at - (self.burst - 1) / self.per_second

    def tokens(self, full_at: float, now: float) -> int:
        """How many may start now."""
        if now >= full_at:
            return self.burst
        # Who sleeps until next_at must find a token then, whatever rounding does to the division.
        least = 1 if now >= self.next_at(full_at) else 0
        return max(least, floor(self.burst - (full_at - now) * self.per_second + ROUNDING))

    def full_at_after(self, full_at: float, now: float, starts: int) -> float:
        """When the bucket is full after so many starts."""
        return max(full_at, now) + starts / self.per_second

    def full_at_converted(self, full_at: float, before: Rate, now: float) -> float:
        """When the bucket is full at this rate, if it was filled and spent at another until now."""
        kept = min(before.burst - max(full_at - now, 0.0) * before.per_second, self.burst)
        return now + (self.burst - max(kept, 0.0)) / self.per_second


class Bucket:
    """The tokens of one partition, none at first."""

    __slots__ = ("_full_at", "_rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._full_at = rate.full_at_if_empty(now)

    def change(self, rate: Rate, now: float) -> None:
        self._full_at = rate.full_at_converted(self._full_at, self._rate, now)
        self._rate = rate

    def tokens(self, now: float) -> int:
        return self._rate.tokens(self._full_at, now)

    def next_at(self) -> float:
        return self._rate.next_at(self._full_at)

    def spend(self, now: float, starts: int) -> None:
        self._full_at = self._rate.full_at_after(self._full_at, now, starts)


class KeyBuckets:
    """The tokens of each key, none at first; keys whose bucket is full again are forgotten."""

    __slots__ = ("_full_at", "_rate", "_sweep_at_size", "_unseen_full_at")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._unseen_full_at = rate.full_at_if_empty(now)
        self._full_at: dict[bytes, float] = {}
        self._sweep_at_size = FEWEST_BEFORE_A_SWEEP

    def change(self, rate: Rate, now: float) -> None:
        self._unseen_full_at = rate.full_at_converted(self._unseen_full_at, self._rate, now)
        for key, full_at in self._full_at.items():
            self._full_at[key] = rate.full_at_converted(full_at, self._rate, now)
        self._rate = rate

    def empty(self, keys: Iterable[bytes], now: float) -> None:
        """Of these keys another partition may just have spent all."""
        full_at = self._rate.full_at_if_empty(now)
        self._full_at.update(dict.fromkeys(keys, full_at))

    def empty_all(self, now: float) -> None:
        """Of any key another partition may just have spent all."""
        self._full_at.clear()
        self._unseen_full_at = self._rate.full_at_if_empty(now)

    def next_at(self, key: bytes) -> float:
        return self._rate.next_at(self._full_at.get(key, self._unseen_full_at))

    def spend(self, key: bytes, now: float) -> None:
        if len(self._full_at) >= self._sweep_at_size:
            self._sweep(now)
        self._full_at[key] = self._rate.full_at_after(self._full_at.get(key, self._unseen_full_at), now, 1)

    def _sweep(self, now: float) -> None:
        if now >= self._unseen_full_at:
            self._full_at = {key: full_at for key, full_at in self._full_at.items() if full_at > now}
        self._sweep_at_size = max(2 * len(self._full_at), FEWEST_BEFORE_A_SWEEP)

    def __len__(self) -> int:
        return len(self._full_at)
