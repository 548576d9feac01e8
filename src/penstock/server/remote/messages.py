"""What remote workers and their servers say to each other, as it stands in bodies of JSON.

Ids are text. Arguments are handed on as they are stored, results stored as they come.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from penstock.server.values import Base64

__all__ = [
    "DiscardedEnd",
    "FailedEnd",
    "GivenJob",
    "JobEnd",
    "LostJob",
    "Poll",
    "PollAnswer",
    "Progress",
    "Registered",
    "Registration",
    "ReleasedEnd",
    "RenewAnswer",
    "RetryEnd",
    "SnoozedEnd",
    "SucceededEnd",
    "TaskOptions",
]


def _null() -> msgspec.Raw:
    return msgspec.Raw(b"null")


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker says of a task: how many attempts its jobs have, after how many seconds one is taken away, and how
    many seconds they wait after one that failed.
    """

    max_attempts: int | None = None
    timeout: float | None = None
    backoff: float | None = None


class Registration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker that wants jobs: of which queues and tasks, how many at once, how many seconds it may be silent."""

    name: str
    queues: dict[str, dict[str, TaskOptions]]
    concurrency: int = 16
    lease: float | None = None


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """Under what a worker was entered, and for how many seconds it may be silent."""

    worker: str
    lease: float


class _End(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="end"):
    """How a job ended, named as it was given."""

    job: str
    lease: str


class SucceededEnd(_End, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="end", tag="succeeded"):
    """It is done."""

    # Made by a function: a default would stand in openapi.json, which cannot hold it.
    result: msgspec.Raw = msgspec.field(default_factory=_null)


class RetryEnd(_End, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="end", tag="retry"):
    """It failed, and is tried again while it has attempts: after so many seconds, or by its task's backoff."""

    error: str = ""
    after: float | None = None


class FailedEnd(_End, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="end", tag="failed"):
    """It failed, and is not tried again: it goes to the dead letters."""

    error: str = ""


class SnoozedEnd(_End, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="end", tag="snoozed"):
    """It is run later, and that counts no attempt."""

    after: float = 0.0


class DiscardedEnd(_End, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="end", tag="discarded"):
    """It is not to be done."""

    reason: str = ""


class ReleasedEnd(_End, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="end", tag="released"):
    """It was not begun, and is given to somebody else."""


JobEnd: TypeAlias = SucceededEnd | RetryEnd | FailedEnd | SnoozedEnd | DiscardedEnd | ReleasedEnd


class Poll(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of a worker: what ended, how many jobs more it wants, and for how many seconds it waits for them.

    Numbers begin with 1 and grow by one. The same number again is the same call.
    """

    number: int
    ends: list[JobEnd] = []
    want: int = 0
    wait: float = 0.0


class GivenJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be run. `lease` is to be named at its end; a timeout of null is none.

    `traceparent` and `tracestate` are the trace context of the call that enqueued it, where that was sampled.
    """

    id: str
    lease: str
    queue: str
    task: str
    args: msgspec.Raw
    key: str | Base64 | None
    attempt: int
    timeout: float | None
    traceparent: str | msgspec.UnsetType = msgspec.UNSET
    tracestate: str | msgspec.UnsetType = msgspec.UNSET


class LostJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is not this worker's any more: an end of it was not taken, or it was taken away."""

    job: str
    lease: str


class PollAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is given, what it has lost, which of its jobs somebody wants stopped, and whether to stop asking
    this server.
    """

    jobs: list[GivenJob] = []
    lost: list[LostJob] = []
    cancelled: list[str] = []
    stop: bool = False


class RenewAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The same of a worker that only says that it lives."""

    cancelled: list[str] = []
    lost: list[str] = []
    stop: bool = False


class Progress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker says that it lives, and how far its jobs have come: by id, a number or {"value", "note"}."""

    progress: dict[str, Any] = {}
