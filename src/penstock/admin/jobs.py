"""Jobs as a person handles them: one by its id, or many by a filter.

A job is handled on the shard that its id names, a filter on every shard. A filter is worked through in batches, each a
short transaction; what matched when it began is dealt with, and nothing that was enqueued since. With `preview` nothing
changes and the answer is how many it would be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from penstock.acting import current_actor
from penstock.admin.answers import ask_everywhere, refuse_missing, some_jobs, unavailable
from penstock.admin.edits import checked_edit
from penstock.admin.naming_partitions import partition_places
from penstock.errors import InvalidInput, NotFound, PartitionUnavailable
from penstock.model.cause import checked_cause
from penstock.model.checks import checked_count, checked_job_id, checked_name, checked_run_at, key_to_bytes
from penstock.model.job import Job
from penstock.model.job_filters import ANY_JOB, FILTERS, JobFilters, JobScope
from penstock.model.job_page import JobPage
from penstock.model.job_state import FINAL, State
from penstock.shards.databases import Answers, Databases
from penstock.shards.locating import at_job
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import find_queue, set_paused
from penstock.storage.inspect.jobs import Listed, find_job, jobs_in_scope, list_jobs
from penstock.storage.inspect.selection import Selection, looks
from penstock.storage.inspect.stats import read_figures
from penstock.storage.inspect.watching import children_here, enqueued_below
from penstock.storage.repair import control
from penstock.task.definition import TaskDefinition

__all__ = [
    "cancel",
    "children",
    "job",
    "job_page",
    "jobs",
    "known_jobs",
    "newest_dead_letters",
    "pause",
    "purge",
    "reschedule",
    "resume",
    "retry",
]

MOST_LISTED = 10_000
MOST_CHILDREN = 1_000
PAST = {"cancel": "cancelled", "retry": "retried", "purge": "purged"}
_WAITING = (State.SCHEDULED, State.BLOCKED, State.READY)


def job(databases: Databases, job_id: int | str, *, waits: bool = False, scope: JobScope | None = None) -> Job:
    """One job, or NotFound, also where it is outside of a scope. `waits`: for its shard, where that is down."""
    id_ = checked_job_id(job_id)
    return at_job(databases, id_, lambda connection: find_job(connection, id_, scope), waits=waits)


def known_jobs(databases: Databases, ids: Collection[int], scope: JobScope) -> set[int]:
    """Those of these jobs that are in a scope, as far as shards answer."""
    asked = sorted(ids)
    answers = ask_everywhere(databases, lambda connection: jobs_in_scope(connection, asked, scope))
    return {id_ for each in answers for id_ in each}


def children(databases: Databases, job_id: int | str, scope: JobScope | None = None) -> list[int]:
    """The jobs that wait for a job, on whichever shard, the newest first; a thousand of them at most."""
    id_ = checked_job_id(job_id)
    found = ask_everywhere(databases, lambda connection: children_here(connection, id_, MOST_CHILDREN))
    ids = {each.id for here in found for each in here if scope is None or scope.has(each.queue, each.tenant)}
    return sorted(ids, reverse=True)[:MOST_CHILDREN]


def jobs(
    databases: Databases, filters: JobFilters = ANY_JOB, *, limit: int = 100, before: int | str | None = None
) -> list[Job]:
    """Jobs, newest first: by id, over all shards. A filter that matches little is looked for among the newest 50,000
    of each shard below `before` only.
    """
    found, floor = _listed(_list(databases, filters, limit, before))
    # Where all of what was found lies below what some shard has looked at, it is given all the same.
    return ([each for each in found if each.id >= floor] or found)[:limit]


def job_page(
    databases: Databases, filters: JobFilters = ANY_JOB, *, limit: int = 100, before: int | str | None = None
) -> JobPage:
    """The same, and where to go on: down to where all shards have looked, so that whoever goes on misses nothing."""
    return _page(databases, _list(databases, filters, limit, before), limit)


def newest_dead_letters(databases: Databases, queue: str | None = None, *, limit: int = 100) -> JobPage:
    """The same of dead letters, without those that failed and were cleared since."""
    filters = JobFilters(queue=queue, state=State.FAILED)
    return _page(databases, _list(databases, filters, limit, None, can_retry=True), limit)


def _page(databases: Databases, answers: Answers[Listed], limit: int) -> JobPage:
    found, floor = _listed(answers)
    shown = [each for each in found if each.id >= floor][:limit]
    next_, searched_to = floor or None, None
    if len(shown) == limit:
        next_, searched_to = shown[-1].id, shown[-1].enqueued_at
    elif floor:
        searched_to = _enqueued_below(databases, floor)
    return JobPage(jobs=shown, next=next_, searched_to=searched_to, unavailable=unavailable(answers))


def cancel(
    databases: Databases,
    job_id: int | str | None = None,
    filters: JobFilters = ANY_JOB,
    *,
    preview: bool = False,
    reason: str | None = None,
) -> State | int:
    """Cancel one job and give the state it is in now, or all that match and have not ended and give their number.

    A running job is asked to stop: its state is still running. One that has ended keeps the state it ended in.
    """
    why = _checked_reason(reason, control.BY_CANCEL)
    if filters.cause is not None:
        raise InvalidInput(
            "cause", "only dead letters have one, and cancel ends what has not ended; retry or purge them"
        )
    if _is_one(job_id, preview, filters):
        id_ = checked_job_id(job_id)
        return at_job(
            databases, id_, lambda connection: control.cancel_job(connection, id_, why), waits=True, writes=True
        )
    asked = _checked_state(filters.state, (*_WAITING, State.RUNNING), "cancel")
    # Running last: what starts meanwhile is met there.
    states = [asked] if asked else [*_WAITING, State.RUNNING]

    def act(connection: Connection, ids: Sequence[int], state: State) -> int:
        done = control.cancel_jobs(connection, ids, why, asks=state is State.RUNNING)
        return len(done.ended) + len(done.asked)

    def end_all(connection: Connection, partitions: Sequence[int], state: State) -> int:
        return control.purge(connection, partitions, state, why)

    return _each(databases, filters, states, act, "cancel", preview=preview, end_all=end_all)


def retry(
    databases: Databases,
    job_id: int | str | None = None,
    filters: JobFilters = ANY_JOB,
    *,
    args: Mapping[str, Any] | None = None,
    tasks: Mapping[str, Mapping[str, TaskDefinition]] | None = None,
    preview: bool = False,
) -> State | int:
    """Run a dead letter again, or now what waits for a time, and give its state; or all that match, and their number.

    A job that neither failed nor waits for a time stays as it is. With `args` a dead letter has these arguments from
    now on; `tasks` are those that the app declares, by queue, and tell what they take.
    """
    if args is not None and job_id is None:
        raise InvalidInput("args", "arguments are changed of one job: give its id, and no filter")
    if _is_one(job_id, preview, filters):
        id_ = checked_job_id(job_id)
        if args is not None:
            found = job(databases, id_, waits=True)
            raw = checked_edit(found, args, (tasks or {}).get(found.queue, {}).get(found.task))
            return _retry_edited(databases, id_, raw)
        return at_job(databases, id_, lambda connection: control.retry_job(connection, id_), waits=True, writes=True)
    state = _checked_state(filters.state, (State.FAILED, State.SCHEDULED), "retry") or State.FAILED

    def act(connection: Connection, ids: Sequence[int], state: State) -> int:
        if state is State.FAILED:
            return len(control.retry_dead(connection, ids))
        return control.retry_scheduled(connection, ids)

    return _each(databases, filters, [state], act, "retry", preview=preview)


def _retry_edited(databases: Databases, id_: int, raw: bytes) -> State:
    author, is_asked = current_actor().name, False

    def act(connection: Connection) -> State:
        nonlocal is_asked
        is_repeated, is_asked = is_asked, True
        try:
            return control.retry_edited(connection, id_, raw, author, is_repeated=is_repeated)
        except NotFound:
            is_asked = is_repeated  # Nothing was done here: it is asked for on another shard.
            raise

    return at_job(databases, id_, act, waits=True, writes=True)


def reschedule(databases: Databases, job_id: int | str, run_at: datetime) -> State:
    """Move a waiting job to another time; the state it is in now, unchanged where it does not wait."""
    id_, instant = checked_job_id(job_id), checked_run_at(run_at)
    act = partial(control.reschedule_job, job_id=id_, run_at=instant)
    return at_job(databases, id_, act, waits=True, writes=True)


def purge(databases: Databases, filters: JobFilters, *, preview: bool = False, reason: str | None = None) -> int:
    """End a queue's waiting jobs (ready, scheduled, blocked) as cancelled, or clear its dead letters, all or those of a
    cause; how many.
    """
    why = _checked_reason(reason, control.BY_PURGE)
    asked = _checked_state(filters.state, (*_WAITING, State.FAILED), "purge")
    states = [asked] if asked else list(_WAITING) if filters.cause is None else [State.FAILED]

    def act(connection: Connection, ids: Sequence[int], state: State) -> int:
        if state is State.FAILED:
            return control.clear_dead(connection, ids)
        return len(control.cancel_jobs(connection, ids, why, asks=False).ended)

    def end_all(connection: Connection, partitions: Sequence[int], state: State) -> int:
        return control.purge(connection, partitions, state, why)

    return _each(databases, filters, states, act, "purge", preview=preview, end_all=end_all)


def pause(databases: Databases, queue: str) -> None:
    """Give out none of a queue's jobs until `resume`."""
    databases.change(lambda connection: set_paused(connection, queue, True))


def resume(databases: Databases, queue: str) -> None:
    """Give them out again."""
    databases.change(lambda connection: set_paused(connection, queue, False))


def _list(
    databases: Databases, filters: JobFilters, limit: int, before: int | str | None, *, can_retry: bool = False
) -> Answers[Listed]:
    checked_count("limit", limit, most=MOST_LISTED)
    upper = None if before is None else checked_job_id(before, "before")
    selection = _selection(databases, filters, can_retry=can_retry)
    return ask_everywhere(databases, lambda c: list_jobs(c, selection, limit=limit, before=upper))


def _listed(answers: Answers[Listed]) -> tuple[list[Job], int]:
    """What several shards listed, the newest first, and the id down to which all of them have looked; 0: to the end."""
    found = {each.id: each for listed in answers for each in listed.jobs}
    floor = max((listed.floor for listed in answers if listed.floor is not None), default=0)
    return [found[id_] for id_ in sorted(found, reverse=True)], floor


def _enqueued_below(databases: Databases, id_: int) -> datetime | None:
    """When the jobs were enqueued that a search has come to; None where their shard has gone since."""
    with suppress(PartitionUnavailable, NotFound):
        return databases.ask(databases.of_job(id_), lambda c: enqueued_below(c, id_), writes=False)
    return None


def _is_one(job_id: object, preview: bool, filters: JobFilters) -> bool:
    is_any = filters == ANY_JOB
    if job_id is not None:
        if not is_any or preview:
            raise InvalidInput("job_id", "give a job's id or a filter, not both")
        return True
    if is_any:
        raise InvalidInput("job_id", f"give a job's id, or a filter: {', '.join(FILTERS)}")
    return False


def _checked_reason(reason: object, usual: str) -> str:
    return usual if reason is None else checked_name("reason", reason)


def _checked_name(field: str, value: object) -> str | None:
    return None if value is None else checked_name(field, value)


def _checked_state(value: object, allowed: Sequence[State], verb: str) -> State | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in allowed:
        dead = " (dead letters are failed)" if State.FAILED in allowed else ""
        raise InvalidInput("state", f"{verb} takes {', '.join(allowed)}{dead}, not {value!a:.60}")
    return State(value)


def _selection(databases: Databases, filters: JobFilters, *, can_retry: bool = False) -> Selection:
    name = _checked_name("queue", filters.queue)
    partitions = None
    if filters.partition is not None:
        partitions = partition_places(databases, name, filters.partition)
    elif name is not None:
        # What ended in a deleted queue is looked at by the name that it has since.
        partitions = databases.read(lambda connection: find_queue(connection, name, deleted=True)).partition_ids
    state = _checked_state(filters.state, (*_WAITING, State.RUNNING, *sorted(FINAL)), "a filter")
    cause = None if filters.cause is None else checked_cause(filters.cause)
    if cause is not None and state not in (None, State.FAILED):
        raise InvalidInput("state", f"only dead letters have a cause: leave it out, or give failed, not {state}")
    return Selection(
        partitions=partitions,
        is_partition=filters.partition is not None,
        state=state if cause is None else State.FAILED,
        task=_checked_name("task", filters.task),
        key=None if filters.key is None else key_to_bytes(filters.key),
        load=_checked_name("load", filters.load),
        tag=_checked_name("tag", filters.tag),
        tenant=_checked_name("tenant", filters.tenant),
        created_by=_checked_name("created_by", filters.created_by),
        cause=cause,
        can_retry=can_retry,
    )


def _each(
    databases: Databases,
    filters: JobFilters,
    states: Sequence[State],
    act: Callable[[Connection, Sequence[int], State], int],
    verb: str,
    *,
    preview: bool,
    end_all: Callable[[Connection, Sequence[int], State], int] | None = None,
) -> int:
    """Do an act to every job of these states that matches, batch by batch; how many it changed, or would.

    `end_all` ends what does not run of whole partitions at once, without a look at the jobs.
    """
    selections = [_selection(databases, replace(filters, state=state), can_retry=True) for state in states]

    def work(connection: Connection, count: Callable[[int], None]) -> None:
        for selection, state in zip(selections, states, strict=True):
            is_whole = selection.reads_no_job and selection.partitions is not None and selection.cause is None
            if is_whole and preview:
                count(_count(connection, selection.partitions or (), state))
            elif is_whole and end_all is not None and state is not State.RUNNING:
                count(end_all(connection, selection.partitions or (), state))
            else:
                for found in looks(connection, selection):
                    if found.ids:
                        count(len(found.ids) if preview else act(connection, found.ids, state))

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
