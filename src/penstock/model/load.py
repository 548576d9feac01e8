"""A load as it is read back: a bulk write with a name, and how far its jobs are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

__all__ = ["Load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load at the moment it was read.

    `rows` came in, `duplicates` of them were left out because their idempotency key was known. `waiting`, `running` and
    `failed` (dead letters) say where its jobs are; `done` have ended, in whatever way. `state` is "running", "paused",
    "cancelled" or "done"; nothing of one that is "running" starts while `is_queue_paused`. A stream goes on, so it is
    "running" also while nothing waits. `rate` is how many ended a second over the last minute, `eta_seconds` how long
    the rest would take at that rate; None where nothing moves.
    """

    name: str
    queue: str
    state: str
    is_queue_paused: bool
    is_stream: bool
    batches: int
    rows: int
    duplicates: int
    waiting: int
    running: int
    failed: int
    done: int
    rate: float
    eta_seconds: float | None
    published_at: datetime | None
