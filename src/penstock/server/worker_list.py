"""Workers over HTTP, as one looks at them: who is alive, what each does; and to stop one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from penstock.model import WorkerInfo
from penstock.server.call import Call
from penstock.server.operation import Operations
from penstock.server.queues import LimitQuery

__all__ = ["worker_list"]

worker_list = Operations()


class WorkersQuery(LimitQuery, frozen=True, kw_only=True):
    """How many workers at most, and how many of the jobs that each runs."""

    jobs: Annotated[int, Meta(ge=0, le=100)] = 0


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers that have not been declared dead, those that started first; `count` is how many there are."""

    workers: list[WorkerInfo]
    count: int
    unavailable: list[str]


@worker_list.add("GET", "/workers", may="read")
def list_workers(call: Call, query: WorkersQuery) -> Workers:
    """Every worker that has not been declared dead."""
    found = call.app.workers(jobs=query.jobs)
    return Workers(found[: query.limit], len(found), call.unavailable())


@worker_list.add("GET", "/workers/{worker}", may="read")
def read_worker(call: Call, worker: str) -> WorkerInfo:
    """One worker, with the jobs that it runs, those that run longest first; a hundred at most."""
    return call.app.worker(worker)


@worker_list.add("POST", "/workers/{worker}/stop", may="admin")
def stop_worker(call: Call, worker: str) -> WorkerInfo:
    """Ask a worker to end gently, which it hears within a second.

    It takes no more jobs, ends those that run within its grace, hands back the rest and leaves.
    """
    call.app.stop_worker(worker)
    return call.app.worker(worker)
