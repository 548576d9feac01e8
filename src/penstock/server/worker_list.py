"""Workers over HTTP, as one looks at them: who is alive, and what each does."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model import WorkerInfo
from penstock.server.call import Call
from penstock.server.operation import Operations
from penstock.server.queues import LimitQuery

__all__ = ["worker_list"]

worker_list = Operations()


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers that have not been declared dead, those that started first; `count` is how many there are."""

    workers: list[WorkerInfo]
    count: int
    unavailable: list[str]


@worker_list.add("GET", "/workers", may="read")
def list_workers(call: Call, query: LimitQuery) -> Workers:
    """Every worker that has not been declared dead."""
    found = call.app.workers()
    return Workers(found[: query.limit], len(found), call.unavailable())
