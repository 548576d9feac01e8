"""By what jobs are chosen over HTTP: the filters of `app.jobs`, in a query or in a body."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from penstock.errors import InvalidInput
from penstock.model.job_filters import FILTERS
from penstock.model.job_state import State
from penstock.server.values import Base64, key_of

__all__ = ["MOST_LISTED", "JobsFilter", "JobsInQueue", "JobsQuery", "body_filters", "query_filters"]

MOST_LISTED = 1_000


class JobsQuery(Struct, frozen=True, kw_only=True):
    """Which jobs are asked for, newest first, and how many."""

    queue: str | None = None
    partition: str | None = None
    state: State | None = None
    task: str | None = None
    key: str | None = None
    key_base64: str | None = None
    load: str | None = None
    tag: str | None = None
    tenant: str | None = None
    created_by: str | None = None
    cause: str | None = None
    before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 100


class JobsInQueue(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs of a queue are meant. With `preview` nothing is changed, only counted."""

    partition: int | str | None = None
    state: State | None = None
    task: str | None = None
    key: str | int | Base64 | None = None
    load: str | None = None
    tag: str | None = None
    tenant: str | None = None
    created_by: str | None = None
    cause: str | None = None
    preview: bool = False


class JobsFilter(JobsInQueue, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs are meant; at least one of these is given. With `preview` nothing is changed, only counted."""

    queue: str | None = None


def query_filters(query: JobsQuery) -> dict[str, Any]:
    """The filters of a query, as the app takes them."""
    if query.key is not None and query.key_base64 is not None:
        raise InvalidInput("key_base64", "give the key as text or as base64, not both")
    filters = {name: getattr(query, name) for name in FILTERS}
    if query.key_base64 is not None:
        filters["key"] = key_of("key_base64", Base64(query.key_base64))
    return filters


def body_filters(body: JobsInQueue) -> dict[str, Any]:
    """The filters of a body, as the app takes them."""
    return {name: getattr(body, name) for name in FILTERS if name in body.__struct_fields__} | {
        "key": key_of("key", body.key)
    }
