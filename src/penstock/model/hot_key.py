"""The keys of a queue that most of its jobs wait for."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from penstock.model.short_repr import ShortRepr

__all__ = ["HotKey", "HotKeys"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HotKey:
    """A key with many jobs that are ready: how many, and which share of the queue's that is, from 0 to 1.

    `oldest_ready_at` is since when the one of them waits that has waited longest, of those that were looked at.
    `running` counts jobs of the key that are given out; `is_held` and `is_halted` tell whether the key waits for a
    retry, or for a person.
    """

    key: str | bytes
    waiting: int
    share: float
    oldest_ready_at: datetime
    running: int
    is_held: bool
    is_halted: bool


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HotKeys(ShortRepr):
    """The answer of `app.hot_keys`: those with the most jobs first, and how many jobs of the queue are ready in all.

    Of a long queue some jobs are looked at, chosen at random all over it: then `is_estimate`, and `looked_at` tells how
    many. `unavailable` are the shards that did not answer, whose partitions are left out.
    """

    queue: str
    waiting: int
    is_estimate: bool
    looked_at: int
    keys: list[HotKey] = field(default_factory=list)
    unavailable: list[str] = field(default_factory=list)
