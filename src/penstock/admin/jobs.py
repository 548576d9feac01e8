"""Jobs as a person handles them: one by its id, or many by a filter.

A job is handled on the shard that its id names, a filter on every shard. A filter is worked through in batches, each a
short transaction; what matched when it began is dealt with, and nothing that was enqueued since. With `preview` nothing
changes and the answer is how many it would be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from penstock.admin.answers import ask_everywhere, refuse_missing, some_jobs
from penstock.errors import InvalidInput
from penstock.model.checks import checked_count, checked_job_id, checked_name, checked_run_at, key_to_bytes
from penstock.model.job import Job
from penstock.model.job_state import FINAL, State
from penstock.shards.databases import Databases
from penstock.shards.locating import at_job
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import find_queue, set_paused
from penstock.storage.inspect.jobs import Listed, find_job, list_jobs
from penstock.storage.inspect.selection import Selection, looks
from penstock.storage.inspect.stats import read_figures
from penstock.storage.repair import control

__all__ = ["cancel", "job", "jobs", "pause", "purge", "reschedule", "resume", "retry"]

MOST_LISTED = 10_000
PAST = {"cancel": "cancelled", "retry": "retried", "purge": "purged"}
_WAITING = (State.SCHEDULED, State.BLOCKED, State.READY)


def job(databases: Databases, job_id: int | str, *, waits: bool = False) -> Job:
    """One job, or NotFound. `waits`: for its shard, where that is down."""
    id_ = checked_job_id(job_id)
    return at_job(databases, id_, lambda connection: find_job(connection, id_), waits=waits)


def jobs(databases: Databases, *, limit: int = 100, before: int | str | None = None, **filters: Any) -> list[Job]:
    """Jobs, newest first: by id, over all shards. A filter that matches little is looked for among the newest 50,000
    of each shard below `before` only.
    """
    checked_count("limit", limit, most=MOST_LISTED)
    upper = None if before is None else checked_job_id(before, "before")
    selection = _selection(databases, **filters)
    return _newest(list(ask_everywhere(databases, lambda c: list_jobs(c, selection, limit=limit, before=upper))), limit)


def cancel(
    databases: Databases, job_id: int | str | None = None, *, preview: bool = False, **filters: Any
) -> State | int:
    """Cancel one job and give the state it is in now, or all that match and have not ended and give their number.

    A running job is asked to stop: its state is still running. One that has ended keeps the state it ended in.
    """
    if _is_one(job_id, preview, filters):
        id_ = checked_job_id(job_id)
        return at_job(databases, id_, lambda connection: control.cancel_job(connection, id_), waits=True, writes=True)
    asked = _checked_state(filters.pop("state", None), (*_WAITING, State.RUNNING), "cancel")
    states = [asked] if asked else [*_WAITING, State.RUNNING]

    def act(connection: Connection, ids: Sequence[int]) -> int:
        done = control.cancel_jobs(connection, ids)
        return len(done.ended) + len(done.asked)

    return _each(databases, filters, states, act, "cancel", preview=preview, may_purge=True)


def retry(
    databases: Databases, job_id: int | str | None = None, *, preview: bool = False, **filters: Any
) -> State | int:
    """Run a dead letter again, or now what waits for a time, and give its state; or all that match, and their number.

    A job that neither failed nor waits for a time stays as it is.
    """
    if _is_one(job_id, preview, filters):
        id_ = checked_job_id(job_id)
        return at_job(databases, id_, lambda connection: control.retry_job(connection, id_), waits=True, writes=True)
    state = _checked_state(filters.pop("state", None), (State.FAILED, State.SCHEDULED), "retry") or State.FAILED

    def act(connection: Connection, ids: Sequence[int]) -> int:
        if state is State.FAILED:
            return len(control.retry_dead(connection, ids))
        return control.retry_scheduled(connection, ids)

    return _each(databases, filters, [state], act, "retry", preview=preview)


def reschedule(databases: Databases, job_id: int | str, run_at: datetime) -> State:
    """Move a waiting job to another time; the state it is in now, unchanged where it does not wait."""
    id_, instant = checked_job_id(job_id), checked_run_at(run_at)
    act = partial(control.reschedule_job, job_id=id_, run_at=instant)
    return at_job(databases, id_, act, waits=True, writes=True)


def purge(databases: Databases, queue: str, *, state: str | None = None, preview: bool = False) -> int:
    """End a queue's waiting jobs (ready, scheduled, blocked) as cancelled, or clear its dead letters; how many."""
    asked = _checked_state(state, (*_WAITING, State.FAILED), "purge")
    states = [asked] if asked else list(_WAITING)
    partitions = _selection(databases, queue=queue).partitions or ()

    def work(connection: Connection, count: Callable[[int], None]) -> None:
        for each in states:
            count(_count(connection, partitions, each) if preview else control.purge(connection, partitions, each))

    return _on_each(databases, work, "purge", preview=preview)


def pause(databases: Databases, queue: str) -> None:
    """Give out none of a queue's jobs until `resume`."""
    databases.change(lambda connection: set_paused(connection, queue, True))


def resume(databases: Databases, queue: str) -> None:
    """Give them out again."""
    databases.change(lambda connection: set_paused(connection, queue, False))


def _newest(found: Sequence[Listed], limit: int) -> list[Job]:
    """The newest of what several shards listed, down to where all of them have looked: whoever asks for the next page
    misses nothing. Where that is nothing at all, what was found.
    """
    jobs = {each.id: each for listed in found for each in listed.jobs}
    floor = max((listed.floor for listed in found if listed.floor is not None), default=0)
    newest = sorted(jobs, reverse=True)
    return [jobs[id_] for id_ in ([id_ for id_ in newest if id_ >= floor] or newest)[:limit]]


def _is_one(job_id: object, preview: bool, filters: dict[str, Any]) -> bool:
    chosen = {name for name, value in filters.items() if value is not None}
    if job_id is not None:
        if chosen or preview:
            raise InvalidInput("job_id", "give a job's id or a filter, not both")
        return True
    if not chosen:
        raise InvalidInput("job_id", "give a job's id, or a filter: queue, state, task, key, load, tag")
    return False


def _checked_state(value: object, allowed: Sequence[State], verb: str) -> State | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in allowed:
        raise InvalidInput("state", f"{verb} takes {', '.join(allowed)}, not {value!a:.60}")
    return State(value)


def _selection(
    databases: Databases,
    *,
    queue: str | None = None,
    state: str | None = None,
    task: str | None = None,
    key: str | bytes | int | None = None,
    load: str | None = None,
    tag: str | None = None,
    can_retry: bool = False,
) -> Selection:
    name = None if queue is None else checked_name("queue", queue)
    return Selection(
        partitions=None if name is None else databases.read(lambda c: find_queue(c, name)).partition_ids,
        state=_checked_state(state, (*_WAITING, State.RUNNING, *sorted(FINAL)), "a filter"),
        task=None if task is None else checked_name("task", task),
        key=None if key is None else key_to_bytes(key),
        load=None if load is None else checked_name("load", load),
        tag=None if tag is None else checked_name("tag", tag),
        can_retry=can_retry,
    )


def _each(
    databases: Databases,
    filters: dict[str, Any],
    states: Sequence[State],
    act: Callable[[Connection, Sequence[int]], int],
    verb: str,
    *,
    preview: bool,
    may_purge: bool = False,
) -> int:
    """Do an act to every job of these states that matches, batch by batch; how many it changed, or would.

    `may_purge`: what waits of a whole queue may go at once, without a look at the jobs.
    """
    selections = [_selection(databases, state=state, can_retry=True, **filters) for state in states]

    def work(connection: Connection, count: Callable[[int], None]) -> None:
        for selection, state in zip(selections, states, strict=True):
            is_whole = selection.reads_no_job and selection.partitions is not None
            if is_whole and preview:
                count(_count(connection, selection.partitions or (), state))
            elif is_whole and may_purge and state in _WAITING:
                count(control.purge(connection, selection.partitions or (), state))
            else:
                for found in looks(connection, selection):
                    if found.ids:
                        count(len(found.ids) if preview else act(connection, found.ids))

    return _on_each(databases, work, verb, preview=preview)


def _on_each(
    databases: Databases, work: Callable[[Connection, Callable[[int], None]], None], verb: str, *, preview: bool
) -> int:
    """Do a work on every shard that answers; what it counted, or an error where one did not."""
    counts: dict[int, int] = {}

    def run(database: Database) -> None:
        def count(jobs: int) -> None:
            counts[database.shard] = counts.get(database.shard, 0) + jobs

        def act(connection: Connection) -> None:
            if preview:
                counts.pop(database.shard, None)  # Asked again after a lost answer, it counts from the start.
            work(connection, count)

        databases.ask(database, act, writes=not preview)

    answers = databases.each_database(run)
    count = sum(counts.values())
    refuse_missing(answers, f"{f'would {verb}' if preview else PAST[verb]} {some_jobs(count)}")
    return count


def _count(connection: Connection, partitions: Sequence[int], state: State) -> int:
    name = {
        State.READY: "queue_length",
        State.RUNNING: "active_count",
        State.SCHEDULED: "scheduled",
        State.BLOCKED: "blocked",
        State.FAILED: "dead",
    }[state]
    return sum(getattr(figures, name) for figures in read_figures(connection, partitions).values())
