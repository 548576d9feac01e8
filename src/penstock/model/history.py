"""The figures of a queue minute by minute, of the last day at most."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from penstock.model.short_repr import ShortRepr

__all__ = ["History", "Minute"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Minute(ShortRepr):
    """What stood in a queue when a minute was noted, and what came and ended since the one noted before.

    `waiting`, `running`, `scheduled`, `blocked` and `dead` count jobs, `oldest_wait_seconds` is of the one that has
    been ready longest. `enqueued` to `expired` count what happened in the `seconds` before; None where no minute was
    noted before, because no worker ran.
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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class History(ShortRepr):
    """The answer of `app.history`: the minutes that were noted, the oldest first; those without a worker are missing.

    `unavailable` are the shards that did not answer, whose partitions are left out.
    """

    queue: str
    minutes: list[Minute] = field(default_factory=list)
    unavailable: list[str] = field(default_factory=list)
