"""A worker as the others see it: who it is, where it runs, what it takes and does, when it was last heard of."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

__all__ = ["RunningJob", "WorkerInfo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A job that a worker runs, and since when."""

    id: int
    queue: str
    task: str
    attempt: int
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """One worker that has not been declared dead. `running` counts the jobs it has started and not settled.

    `concurrency` is how many it runs at once: 0 of what only acts for workers, as a server does. `tasks` are those it
    knows, by queue. One that `is_remote` polls a server, which does not know its host and process. `is_stopping`: it
    was asked to end. `jobs` are some of those it runs, those that run longest first, where they were asked for.

    `ended_last_minute` counts the jobs whose run ended there in the last minute, however it ended, and
    `failed_last_minute` those of them that raised, tried again or not. Of a worker that `is_remote` they are worked out
    from this minute and the one before. None: it does not count them, as what only acts for workers, and Spark's tasks.
    """

    id: int
    name: str
    host: str
    pid: int
    started_at: datetime
    renewed_at: datetime
    concurrency: int
    queues: list[str] = field(default_factory=list)
    running: int = 0
    ended_last_minute: int | None = None
    failed_last_minute: int | None = None
    version: str = ""
    is_remote: bool = False
    is_stopping: bool = False
    tasks: dict[str, list[str]] = field(default_factory=dict)
    jobs: list[RunningJob] = field(default_factory=list)
