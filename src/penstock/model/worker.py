"""A worker as the others see it: who it is, where it runs, what it takes and when it was last heard of."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

__all__ = ["WorkerInfo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """One worker that has not been declared dead. `running` counts the jobs it has started and not settled."""

    id: int
    name: str
    host: str
    pid: int
    started_at: datetime
    renewed_at: datetime
    concurrency: int
    queues: list[str] = field(default_factory=list)
    running: int = 0
