"""A key whose jobs wait although there are workers: for the retry of one of them, or for a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

__all__ = ["BlockedKey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedKey:
    """One of the answers of `app.blocked_keys`.

    `job_id` is the job that holds the key, `until` when it runs again (None: the key is halted, until `app.release` or
    a retry of that job), `waiting` how many ready jobs of the key stand behind it, among the first ten thousand of the
    queue; `may_be_more`: the queue has more than these.
    """

    key: str | bytes
    reason: str
    since: datetime
    waiting: int
    job_id: int
    until: datetime | None
    may_be_more: bool = False
