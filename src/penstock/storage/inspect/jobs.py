"""Reading jobs back: what each was asked to do, where it stands, and what became of its attempts.

A job's id says where to look: its range and its position in it. All the tables it may be in are asked in one statement,
so in one snapshot: a job that moves meanwhile is found, and found once. A job whose history has been pruned is gone,
also where its arguments still lie in a table partition that is not dropped yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from penstock.clock import system
from penstock.errors import NotFound
from penstock.model.cause import cause_id
from penstock.model.checks import key_from_bytes
from penstock.model.job import Edit, Failure, Job
from penstock.model.job_filters import JobScope
from penstock.model.job_state import STATE_OF_OUTCOME, State
from penstock.model.trace_context import TRACEPARENT
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.inspect.health import why_set_aside
from penstock.storage.inspect.selection import Selection, looks

__all__ = ["MOST_LOOKS", "Listed", "find_job", "jobs_in_scope", "list_jobs", "read_jobs"]

# How often a listing looks, after the first small look, before it gives what it has: at 50,000 jobs; and for how long,
# where these looks take longer than they should.
MOST_LOOKS = 10
LONGEST_SEARCH_SECONDS = 1.0
_RAN = (State.SUCCEEDED, State.FAILED)


class Listed(NamedTuple):
    """Jobs, newest first. Below the id `floor` nobody has looked; None: there is nothing more."""

    jobs: list[Job]
    floor: int | None


def find_job(connection: Connection, job_id: int, scope: JobScope | None = None) -> Job:
    """The job of that id, or NotFound. Whether it is in a scope is asked for first, and answered by yes or no: one that
    is not takes what one takes that is not there.
    """
    if scope is not None and not jobs_in_scope(connection, [job_id], scope):
        raise _not_stored(job_id)
    found = read_jobs(connection, [job_id])
    if not found and scope is None and (aside := why_set_aside(connection, job_id)) is not None:
        raise NotFound(
            f"job {job_id} is set aside: {aside[0]}; nothing else is known of it, see app.explain({job_id}) or "
            f"`penstock explain {job_id}`"
        )
    if not found:
        raise _not_stored(job_id)
    return found[0]


def _not_stored(job_id: int) -> NotFound:
    return NotFound(f"job {job_id} is not stored: it never was, or its history has been pruned or archived")


def jobs_in_scope(connection: Connection, ids: Sequence[int], scope: JobScope) -> set[int]:
    """Those of these jobs that are stored here, and in the scope."""
    queues = None if scope.queues is None else sorted(scope.queues)
    asked = {"ids": array_text(ids), "queues": queues, "tenant": scope.tenant}
    return {id_ for (id_,) in connection.execute(query("jobs_in_scope"), asked, prepare=False)}


def read_jobs(connection: Connection, ids: Sequence[int]) -> list[Job]:
    """Those of these jobs that are stored, newest first."""
    rows = connection.execute(query("read_jobs_with_state"), {"ids": array_text(ids)}, prepare=False).fetchall()
    return sorted((_job(*row) for row in rows), key=lambda job: job.id, reverse=True)


def list_jobs(connection: Connection, selection: Selection, *, limit: int = 100, before: int | None = None) -> Listed:
    """The newest jobs that match, with ids below `before`; fewer than `limit` where it did not find more in MOST_LOOKS
    looks, or not in time.
    """
    until = system.monotonic() + LONGEST_SEARCH_SECONDS
    jobs: list[Job] = []
    floor: int | None = None
    for found in islice(looks(connection, selection, before, enough=limit), 1 + MOST_LOOKS):
        for start in range(0, len(found.ids), limit):
            batch = read_jobs(connection, found.ids[start : start + limit])
            jobs += [job for job in batch if selection.state in (None, job.state)]
            if len(jobs) >= limit:
                return Listed(jobs[:limit], jobs[limit - 1].id)
        floor = found.floor
        if system.monotonic() >= until:
            break
    return Listed(jobs, floor)


def _readable(raw: bytes) -> Any:
    """A job's arguments or result; as text where Python cannot read it: a number of 5,000 digits, depth 2,000."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return raw.decode()


def _kept_run_at(rare: dict[str, Any], loads_run_at: datetime | None) -> datetime | None:
    """What was asked for of a job that does not wait for it any more; of one that came with a load, by its range."""
    kept = rare.get("run_at")
    return loads_run_at if kept is None else datetime.fromisoformat(kept)


def _job(
    id_: int,
    queue: str,
    partition: str,
    task: str,
    args: bytes,
    key: bytes | None,
    attributes: bytes | None,
    priority: int,
    enqueued_at: Any,
    state_name: str,
    outcome: int | None,
    attempt: int,
    run_at: Any,
    started_at: Any,
    finished_at: Any,
    worker: str | None,
    result: bytes | None,
    error: str | None,
    attempts: Sequence[int] | None,
    errors: Sequence[str] | None,
    ats: Sequence[Any] | None,
    workers: Sequence[str | None] | None,
    progress: float | None,
    note: str | None,
    progress_at: Any,
    load: str | None,
    edited_ats: Sequence[Any] | None,
    editors: Sequence[str] | None,
    edited_args: Sequence[str] | None,
    loads_run_at: Any,
    cause: int | None,
) -> Job:
    rare = msgspec.json.decode(attributes) if attributes is not None else {}
    failures = [
        Failure(attempt=a, error=e, at=t, worker=w)
        for a, e, t, w in zip(attempts or (), errors or (), ats or (), workers or (), strict=True)
    ]
    state = State(state_name) if outcome is None else STATE_OF_OUTCOME[outcome]
    last = failures[-1] if failures and state is not State.SUCCEEDED else None
    return Job(
        id=id_,
        queue=queue,
        partition=partition,
        task=task,
        args=_readable(args),
        key=None if key is None else key_from_bytes(key),
        state=state,
        # The tables hold the attempt a job is on, or would be on next: it counts once it has started.
        attempt=attempt if started_at is not None or state in _RAN else attempt - 1,
        result=None if result is None else _readable(result),
        error=error if error is not None else (last.error if last else None),
        failures=failures,
        enqueued_at=enqueued_at,
        started_at=started_at,
        finished_at=finished_at,
        worker=worker if worker is not None else (last.worker if last else None),
        load=load,
        tags=rare.get("tags", []),
        priority=priority,
        tenant=rare.get("tenant"),
        created_by=rare.get("created_by"),
        idempotency_key=rare.get("idempotency_key"),
        run_at=run_at if state is State.SCHEDULED or run_at is not None else _kept_run_at(rare, loads_run_at),
        progress=None if progress_at is None else {"value": progress, "note": note},
        after=[int(parent) for parent in rare.get("parents", ())],
        edits=[
            Edit(args=_readable(before.encode()), at=at, edited_by=by)
            for at, by, before in zip(edited_ats or (), editors or (), edited_args or (), strict=True)
        ],
        traceparent=rare.get(TRACEPARENT),
        cause=None if cause is None else cause_id(cause),
    )
