"""An entry of the audit: what somebody did, on what, from where, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["AuditEntry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One act: it was written down at `at`, before it was done.

    `source` is "python", "cli" or "http", `address` where a call over HTTP came from, `database_role` whom the database
    knows the program as. `target` is the job, queue, load, cron, shard or token; `detail` has what else was asked for,
    `count` how many jobs it was about, where the act counts them. `outcome` is "done", "not done" or "unknown" (it may
    have been done in part); None where nobody came to write it: the act is under way, or its program died.
    """

    id: int
    at: datetime
    actor: str
    source: str
    address: str | None
    database_role: str
    act: str
    target: str | None
    count: int | None
    detail: dict[str, Any]
    outcome: str | None
