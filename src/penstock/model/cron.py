"""A cron entry as it is read back: what it enqueues, and when it did and will."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["Cron"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """One entry. `last_at` is the instant it last fired for, `next_at` the one it will fire for next."""

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
