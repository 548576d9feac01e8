"""Why jobs fail, over HTTP: dead letters by their cause, and how often attempts failed of which.

Figures of everybody: a tenant's token is refused. What errors have in common may quote arguments: who may not see
these is told of the causes without it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, cast

from msgspec import Meta, Struct

from penstock.model import Cause, FailureHistory
from penstock.server.call import Call
from penstock.server.narrowing import queue_for, refuse_tenant
from penstock.server.operation import Operations

__all__ = ["causes"]

MOST_LISTED = 1_000
MOST_TOLD_APART = 50
causes = Operations()


class CausesQuery(Struct, frozen=True, kw_only=True):
    """Of which queue, and how many at most."""

    queue: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 100


class FailuresQuery(Struct, frozen=True, kw_only=True):
    """Of how many minutes, of which a day is kept, and how many causes are told apart."""

    minutes: Annotated[int, Meta(ge=1, le=1_440)] = 60
    causes: Annotated[int, Meta(ge=1, le=MOST_TOLD_APART)] = 5


@dataclass(frozen=True, slots=True)
class Causes:
    """Causes of dead letters, that of most of them first."""

    causes: list[Cause]
    unavailable: list[str]


@causes.add("GET", "/dead-letters/causes", may="read", is_narrowed=True)
def list_causes(call: Call, query: CausesQuery) -> Causes:
    """Why dead letters failed: what they have in common, how many there are, and since when.

    Give `id` as `cause` to list, retry or purge those of one. A token for some queues is told of these. One that hides
    arguments is told no `shape`.
    """
    refuse_tenant(call.caller)
    if query.queue is not None and call.caller.queues is not None:
        queue_for(call.caller, query.queue)
    found = call.app.causes(query.queue, limit=query.limit, queues=call.caller.queues)
    if call.caller.hides_args:
        found = [_without_shape(each) for each in found]
    return Causes(found, call.unavailable())


@causes.add("GET", "/queues/{queue}/failures", may="read")
def read_failures(call: Call, queue: str, query: FailuresQuery) -> FailureHistory:
    """How many attempts of a queue failed in each five minutes, of its most frequent causes and of all others."""
    found = call.app.failures(queue, query.minutes, causes=query.causes)
    if call.caller.hides_args:
        found = replace(found, causes=[_without_shape(each) for each in found.causes])
    return found


def _without_shape(cause: Any) -> Any:
    return replace(cause, shape=cast("Any", None))
