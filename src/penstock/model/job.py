"""A job as it is read back: what it was asked to do, where it stands, and what became of each attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.model.job_state import State
from penstock.model.short_repr import ShortRepr

__all__ = ["Edit", "Failure", "Job", "JobDetail"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Failure(ShortRepr):
    """One attempt that did not succeed."""

    attempt: int
    error: str
    at: datetime
    worker: str | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Edit(ShortRepr):
    """What a dead letter's arguments were before it was retried with others; `edited_by` is who did that, and from
    where: the user and machine, and the database role.
    """

    args: dict[str, Any]
    at: datetime
    edited_by: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Job(ShortRepr):
    """One job at the moment it was read.

    `attempt` is the number of attempts counted so far; `worker` the one that runs it, or ran it last; `error` the
    text of the last failure, or why it was cancelled, discarded or has expired; `after` the parents it was enqueued
    behind; `run_at` when it is due, or what was asked for by `delay`, `run_at` or `reschedule`, where it does not wait
    any more; `edits` its arguments of before, each with when and by whom they were changed, the oldest first;
    `traceparent` the trace context of the call that enqueued it, where that was sampled; `cause` that of a dead letter,
    of which others may have died: `app.causes` tells of it.
    """

    id: int
    queue: str
    partition: str
    task: str
    args: dict[str, Any]
    key: str | bytes | None = None
    state: State
    attempt: int = 0
    result: Any = None
    error: str | None = None
    failures: list[Failure] = field(default_factory=list)
    enqueued_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker: str | None = None
    load: str | None = None
    tags: list[str] = field(default_factory=list)
    priority: int = 5
    tenant: str | None = None
    created_by: str | None = None
    idempotency_key: str | None = None
    run_at: datetime | None = None
    progress: Any = None
    after: list[int] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    traceparent: str | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobDetail(Job):
    """A job with its `children`: those that wait for it."""

    children: list[int] = field(default_factory=list)
