"""Jobs as a person handles them: one by its id, or many by a filter.

A filter is worked through in batches, each a short transaction; what matched when it began is dealt with, and nothing
that was enqueued since. With `preview` nothing changes and the answer is how many it would be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from penstock.errors import InvalidJob
from penstock.model.job import Job
from penstock.model.limits import checked_count, checked_job_id, checked_name, checked_run_at, key_to_bytes
from penstock.model.state import FINAL, State
from penstock.storage import Connection, Database, control
from penstock.storage.catalogue import find_queue, set_paused
from penstock.storage.jobs import find_job, list_jobs
from penstock.storage.selection import Selection, looks
from penstock.storage.stats import read_stats

__all__ = ["cancel", "job", "jobs", "pause", "purge", "reschedule", "resume", "retry"]

MOST_LISTED = 10_000
_WAITING = (State.SCHEDULED, State.BLOCKED, State.READY)


def job(database: Database, job_id: int | str) -> Job:
    """One job, or NotFound."""
    id_ = checked_job_id(job_id)
    return database.run(lambda connection: find_job(connection, id_))


def jobs(database: Database, *, limit: int = 100, before: int | str | None = None, **filters: Any) -> list[Job]:
    """Jobs, newest first. A filter that matches little is looked for among the newest 50,000 below `before` only."""
    checked_count("limit", limit, most=MOST_LISTED)
    upper = None if before is None else checked_job_id(before, "before")
    return database.run(
        lambda connection: list_jobs(connection, _selection(connection, **filters), limit=limit, before=upper)
    )


def cancel(
    database: Database, job_id: int | str | None = None, *, preview: bool = False, **filters: Any
) -> State | int:
    """Cancel one job and give the state it is in now, or all that match and have not ended and give their number.

    A running job is asked to stop: its state is still running. One that has ended keeps the state it ended in.
    """
    if _is_one(job_id, preview, filters):
        id_ = checked_job_id(job_id)
        return database.run(lambda connection: control.cancel_job(connection, id_))
    asked = _checked_state(filters.pop("state", None), (*_WAITING, State.RUNNING), "cancel")
    states = [asked] if asked else [*_WAITING, State.RUNNING]

    def act(connection: Connection, ids: Sequence[int]) -> int:
        done = control.cancel_jobs(connection, ids)
        return len(done.ended) + len(done.asked)

    return sum(
        _each(database, filters, state, act, preview, control.purge if state in _WAITING else None) for state in states
    )


def retry(database: Database, job_id: int | str | None = None, *, preview: bool = False, **filters: Any) -> State | int:
    """Run a dead letter again, or now what waits for a time, and give its state; or all that match, and their number.

    A job that neither failed nor waits for a time stays as it is.
    """
    if _is_one(job_id, preview, filters):
        id_ = checked_job_id(job_id)
        return database.run(lambda connection: control.retry_job(connection, id_))
    state = _checked_state(filters.pop("state", None), (State.FAILED, State.SCHEDULED), "retry") or State.FAILED

    def act(connection: Connection, ids: Sequence[int]) -> int:
        if state is State.FAILED:
            return len(control.retry_dead(connection, ids))
        return control.retry_scheduled(connection, ids)

    return _each(database, filters, state, act, preview)


def reschedule(database: Database, job_id: int | str, run_at: datetime) -> State:
    """Move a waiting job to another time; the state it is in now, unchanged where it does not wait."""
    id_, instant = checked_job_id(job_id), checked_run_at(run_at)
    return database.run(lambda connection: control.reschedule_job(connection, id_, instant))


def purge(database: Database, queue: str, *, state: str | None = None, preview: bool = False) -> int:
    """End a queue's waiting jobs (ready, scheduled, blocked) as cancelled, or clear its dead letters; how many."""
    asked = _checked_state(state, (*_WAITING, State.FAILED), "purge")
    states = [asked] if asked else list(_WAITING)
    done = 0

    def act(connection: Connection) -> int:
        nonlocal done
        entry = find_queue(connection, checked_name("queue", queue))
        for each in states:
            if preview:
                done += _count(connection, entry.name, each)
            else:
                done += control.purge(connection, entry.partition_ids, each)
        return done

    return database.run(act)


def pause(database: Database, queue: str) -> None:
    """Give out none of a queue's jobs until `resume`."""
    database.run(lambda connection: set_paused(connection, queue, True))


def resume(database: Database, queue: str) -> None:
    """Give them out again."""
    database.run(lambda connection: set_paused(connection, queue, False))


def _is_one(job_id: object, preview: bool, filters: dict[str, Any]) -> bool:
    chosen = {name for name, value in filters.items() if value is not None}
    if job_id is not None:
        if chosen or preview:
            raise InvalidJob("job_id", "give a job's id or a filter, not both")
        return True
    if not chosen:
        raise InvalidJob("job_id", "give a job's id, or a filter: queue, state, task, key, load, tag")
    return False


def _checked_state(value: object, allowed: Sequence[State], verb: str) -> State | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in allowed:
        raise InvalidJob("state", f"{verb} takes {', '.join(allowed)}, not {value!a:.60}")
    return State(value)


def _selection(
    connection: Connection,
    *,
    queue: str | None = None,
    state: str | None = None,
    task: str | None = None,
    key: str | bytes | int | None = None,
    load: str | None = None,
    tag: str | None = None,
    can_retry: bool = False,
) -> Selection:
    return Selection(
        partitions=None if queue is None else find_queue(connection, checked_name("queue", queue)).partition_ids,
        state=_checked_state(state, (*_WAITING, State.RUNNING, *sorted(FINAL)), "a filter"),
        task=None if task is None else checked_name("task", task),
        key=None if key is None else key_to_bytes(key),
        load=None if load is None else checked_name("load", load),
        tag=None if tag is None else checked_name("tag", tag),
        can_retry=can_retry,
    )


def _each(
    database: Database,
    filters: dict[str, Any],
    state: State,
    act: Callable[[Connection, Sequence[int]], int],
    preview: bool,
    at_once: Callable[[Connection, Sequence[int], State], int] | None = None,
) -> int:
    """Do an act to every job of a state that matches, batch by batch; how many it changed, or would.

    `at_once` does the same to whole queues, without looking at the jobs.
    """
    done = 0

    def work(connection: Connection) -> int:
        nonlocal done
        selection = _selection(connection, state=state, can_retry=True, **filters)
        if selection.is_by_place and selection.partitions is not None:
            if preview:
                return _count(connection, filters["queue"], state)
            if at_once is not None:
                return at_once(connection, selection.partitions, state)
        for found in looks(connection, selection):
            if found.ids:
                done += len(found.ids) if preview else act(connection, found.ids)
        return done

    return database.run(work)


def _count(connection: Connection, queue: str, state: State) -> int:
    figures = read_stats(connection, find_queue(connection, queue))
    return {
        State.READY: figures.queue_length,
        State.RUNNING: figures.active_count,
        State.SCHEDULED: figures.scheduled,
        State.BLOCKED: figures.blocked,
        State.FAILED: figures.dead,
    }[state]
