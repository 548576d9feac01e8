"""The figures of a queue minute by minute, of the last day at most."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from penstock.model.short_repr import ShortRepr

__all__ = ["History", "Minute", "Percentiles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """How long so many jobs (`count`) took, in seconds: half of them `p50` at most, 95 and 99 of 100 `p95` and `p99`.

    They are read off a histogram, and off by a quarter at most, but below a tenth of a millisecond.
    """

    count: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Minute(ShortRepr):
    """What stood in a queue when a minute was noted, and what came and ended since the one noted before.

    `waiting`, `running`, `scheduled`, `blocked` and `dead` count jobs, `oldest_wait_seconds` is of the one that has
    been ready longest. `enqueued` to `expired` count what happened in the `seconds` before; None where no minute was
    noted before, because no worker ran. `wait_seconds` tells how long jobs had been ready when they started,
    `run_seconds` how long their handlers ran, attempts that failed among them; None where nothing was settled.
    """

    minute: datetime
    waiting: int
    running: int
    scheduled: int
    blocked: int
    dead: int
    oldest_wait_seconds: float | None = None
    enqueued: int | None = None
    completed: int | None = None
    failed: int | None = None
    cancelled: int | None = None
    discarded: int | None = None
    expired: int | None = None
    seconds: float | None = None
    wait_seconds: Percentiles | None = None
    run_seconds: Percentiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class History(ShortRepr):
    """The answer of `app.history`: the minutes that were noted, the oldest first; those without a worker are missing.

    `unavailable` are the shards that did not answer, whose partitions are left out.
    """

    queue: str
    minutes: list[Minute] = field(default_factory=list)
    unavailable: list[str] = field(default_factory=list)
