"""What a producer may say about a single job, checked where it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidInput
from penstock.model.checks import (
    MOST_PARENTS,
    checked_delay,
    checked_idempotency_key,
    checked_job_id,
    checked_name,
    checked_priority,
    checked_run_at,
    checked_seconds,
    checked_tags,
    checked_unique_key,
    key_to_bytes,
)
from penstock.model.trace_context import TRACEPARENT

if TYPE_CHECKING:
    from penstock.client.pending import PendingJob

__all__ = ["Options", "unique_in_transaction"]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one job, in the form that is stored. `connection` and `request_timeout` are about the call."""

    priority: int | None = None
    run_at: datetime | None = None
    delay: float | None = None
    after: tuple[int | PendingJob, ...] = ()
    on_parent_failure: str = "cancel"
    idempotency_key: str | None = None
    unique: str | None = None
    unique_key: str | None = None
    key: bytes | None = None
    attributes: dict[str, Any] | None = None
    connection: Any = None
    request_timeout: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether a call of one job with them stands by itself: it names no other job, and no caller's transaction."""
        return self.idempotency_key is None and self.unique is None and not self.after and self.connection is None

    def with_trace(self, trace: Mapping[str, str]) -> Options:
        """The same for a job that continues this trace (see `checked_trace`); one that continues another keeps that."""
        attributes = self.attributes or {}
        return self if not trace or TRACEPARENT in attributes else replace(self, attributes={**attributes, **trace})

    @classmethod
    def checked(
        cls,
        *,
        priority: int | None = None,
        run_at: datetime | None = None,
        delay: float | timedelta | None = None,
        after: Sequence[int | str | PendingJob] | None = None,
        on_parent_failure: str = "cancel",
        idempotency_key: str | None = None,
        unique: str | None = None,
        unique_key: str | None = None,
        key: str | bytes | int | None = None,
        tenant: str | None = None,
        created_by: str | None = None,
        tags: Sequence[str] | None = None,
        connection: Any = None,
        request_timeout: float | None = None,
    ) -> Options:
        """Check what a user wrote."""
        if run_at is not None and delay is not None:
            raise InvalidInput("delay", "both run_at and delay are given; give one of them")
        if on_parent_failure not in ("cancel", "run", "wait"):
            raise InvalidInput(
                "on_parent_failure", f"{on_parent_failure!r:.60} is unknown; give 'cancel', 'run' or 'wait'"
            )
        _check_unique(unique, unique_key, idempotency_key, connection)
        attributes: dict[str, Any] = {}
        if tenant is not None:
            attributes["tenant"] = checked_name("tenant", tenant)
        if created_by is not None:
            attributes["created_by"] = checked_name("created_by", created_by)
        if tags:
            attributes["tags"] = checked_tags(tags)
        if idempotency_key is not None:
            attributes["idempotency_key"] = checked_idempotency_key(idempotency_key)
        return cls(
            priority=None if priority is None else checked_priority(priority),
            run_at=None if run_at is None else checked_run_at(run_at),
            delay=None if delay is None else checked_delay("delay", delay),
            after=_check_parents(after),
            on_parent_failure=on_parent_failure,
            idempotency_key=idempotency_key,
            unique=unique,
            unique_key=None if unique_key is None else checked_unique_key(unique_key),
            key=None if key is None else key_to_bytes(key),
            attributes=attributes or None,
            connection=connection,
            request_timeout=None if request_timeout is None else checked_seconds("request_timeout", request_timeout),
        )


def _check_unique(unique: str | None, unique_key: str | None, idempotency_key: str | None, connection: Any) -> None:
    if unique is None:
        if unique_key is not None:
            raise InvalidInput("unique_key", "it is for jobs that are unique; write unique='waiting' with it")
        return
    if unique != "waiting":
        raise InvalidInput("unique", f"{unique!r:.60} is unknown; give 'waiting'")
    if idempotency_key is not None:
        raise InvalidInput("unique", "both unique and idempotency_key are given; give one of them")
    if connection is not None:
        raise unique_in_transaction()


def unique_in_transaction() -> InvalidInput:
    """The error for a job that is unique while it waits, in a caller's transaction."""
    return InvalidInput(
        "unique",
        "not with connection=: the job that waits could start before your transaction commits, and not see what it "
        "wrote; enqueue after the commit, or use idempotency_key",
    )


def _check_parents(after: Sequence[int | str | PendingJob] | None) -> tuple[int | PendingJob, ...]:
    if after is None:
        return ()
    if isinstance(after, (str, bytes, int)) or not isinstance(after, Sequence):
        raise InvalidInput("after", f"a list of job ids is needed, not {type(after).__name__}; write after=[job_id]")
    if len(after) > MOST_PARENTS:
        raise InvalidInput("after", f"{len(after)} parents are too many; give at most {MOST_PARENTS}")
    return tuple(
        checked_job_id(parent, "after") if isinstance(parent, (int, str)) else _check_pending(parent)
        for parent in after
    )


def _check_pending(parent: PendingJob) -> PendingJob:
    if not hasattr(parent, "args_json"):
        raise InvalidInput("after", f"a job id or task.job(...) is needed, not {type(parent).__name__}")
    return parent
