"""A dead letter as those who watch are told of it: which job, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

__all__ = ["DeadLetter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A job that ran out of attempts at `failed_at`; `error` is what the last one raised."""

    job_id: int
    queue: str
    partition: str
    task: str
    attempt: int
    failed_at: datetime
    worker: str | None
    error: str | None
