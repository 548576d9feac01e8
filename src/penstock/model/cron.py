"""A cron entry as it is read back: what it enqueues, and when it did and will."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.model.job_state import State

__all__ = ["Cron"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """One entry. `last_at` is the instant it last fired for, `next_at` the one it will fire for next.

    `upcoming` begins with that, and has the few after it; one that is paused has none. `last_job_id` is the job that it
    enqueued last, at its time or by hand, and `last_state` the state that job is in now; None where it is forgotten.
    """

    name: str
    expression: str
    timezone: str
    queue: str
    task: str
    args: dict[str, Any]
    key: str | bytes | None
    is_paused: bool
    next_at: datetime
    last_at: datetime | None
    upcoming: list[datetime] = field(default_factory=list)
    last_job_id: int | None = None
    last_state: State | None = None
