"""What is due when, over HTTP."""

from __future__ import annotations

from msgspec import Struct

from penstock.model import Due
from penstock.server.call import Call
from penstock.server.narrowing import queue_for, refuse_tenant
from penstock.server.operation import Operations

__all__ = ["due"]

due = Operations()


class DueQuery(Struct, frozen=True, kw_only=True):
    """Of which queue; all, where it is left out."""

    queue: str | None = None


@due.add("GET", "/due", may="read", is_narrowed=True)
def read_due(call: Call, query: DueQuery) -> Due:
    """How many scheduled jobs are due within the next minute, ten minutes, hour, six hours, day, week, and later.

    Counts are exact up to two thousand rows of a span and shard; beyond that there are so many at least. A token for
    some queues gives one of them, or has only one.
    """
    refuse_tenant(call.caller)
    queue = query.queue if call.caller.queues is None else queue_for(call.caller, query.queue)
    return call.app.due(queue)
