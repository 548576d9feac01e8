"""Acts on jobs that are named one by one, as those that somebody ticked in a list: each is told what became of it.

Those of a shard are taken together as far as that goes; what is left after that is looked at one by one, and may have
been carried to another shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.admin.jobs import job
from penstock.errors import InvalidInput, NotFound, PartitionUnavailable, PenstockError
from penstock.model.checks import checked_job_id, checked_name, shown
from penstock.model.job_act import ActOutcome, JobAct
from penstock.model.job_filters import JobScope
from penstock.model.job_state import FINAL, State
from penstock.shards.databases import Databases
from penstock.shards.locating import at_job
from penstock.storage import Connection
from penstock.storage.inspect.health import why_set_aside
from penstock.storage.inspect.jobs import find_job
from penstock.storage.repair import control

__all__ = ["cancel_jobs", "retry_jobs"]

MOST_NAMED = 1_000
Told = tuple[ActOutcome, State | None]


def cancel_jobs(
    databases: Databases, ids: Sequence[int | str], scope: JobScope | None = None, reason: str | None = None
) -> list[JobAct]:
    """Cancel these jobs; running ones are asked to stop, which is done, too."""
    why = control.BY_CANCEL if reason is None else checked_name("reason", reason)

    def together(connection: Connection, ids: Sequence[int]) -> dict[int, State]:
        done = control.cancel_jobs(connection, ids, why)
        return dict.fromkeys(done.ended, State.CANCELLED) | dict.fromkeys(done.asked, State.RUNNING)

    def alone(connection: Connection, id_: int) -> Told:
        before = find_job(connection, id_).state
        return "not-in-state" if before in FINAL else "done", control.cancel_job(connection, id_, why)

    return _act(databases, ids, scope, together, alone)


def retry_jobs(databases: Databases, ids: Sequence[int | str], scope: JobScope | None = None) -> list[JobAct]:
    """Run these dead letters again, and now what waits for a time or was set aside."""

    def together(connection: Connection, ids: Sequence[int]) -> dict[int, State]:
        return dict.fromkeys(control.retry_dead(connection, ids), State.READY)

    def alone(connection: Connection, id_: int) -> Told:
        before, is_aside = find_job(connection, id_).state, why_set_aside(connection, id_) is not None
        after = control.retry_job(connection, id_)
        return "done" if after is State.READY and (is_aside or before is not after) else "not-in-state", after

    return _act(databases, ids, scope, together, alone)


def _act(
    databases: Databases,
    ids: Sequence[int | str],
    scope: JobScope | None,
    together: Callable[[Connection, Sequence[int]], dict[int, State]],
    alone: Callable[[Connection, int], Told],
) -> list[JobAct]:
    wanted = _checked_ids(ids)
    told: dict[int, Told] = {}
    if scope is not None:
        told = {id_: ("unknown", None) for id_ in wanted if not _is_in(databases, id_, scope)}
    by_shard: dict[int, list[int]] = {}
    for id_ in wanted:
        if id_ not in told:
            by_shard.setdefault(databases.number_of(id_), []).append(id_)
    for here in by_shard.values():
        # What cannot be done together is told one by one.
        with suppress(NotFound, PartitionUnavailable):
            database = databases.of_job(here[0])
            done = databases.ask(database, lambda connection: together(connection, here))  # noqa: B023
            told |= {id_: ("done", state) for id_, state in done.items()}
        for id_ in here:
            if id_ not in told:
                told[id_] = _tell_alone(databases, id_, alone)
                if told[id_][0] == "unavailable":
                    # The others would wait as long.
                    told = {**dict.fromkeys(here, told[id_]), **told}
    return [JobAct(job_id=id_, outcome=told[id_][0], state=told[id_][1]) for id_ in wanted]


def _tell_alone(databases: Databases, id_: int, alone: Callable[[Connection, int], Told]) -> Told:
    try:
        return at_job(databases, id_, lambda connection: alone(connection, id_), writes=True)
    except NotFound:
        return "unknown", None
    except PartitionUnavailable:
        return "unavailable", None
    except PenstockError:
        # It moves all the time, or is stored nowhere any more.
        return "not-in-state", None


def _is_in(databases: Databases, id_: int, scope: JobScope) -> bool:
    with suppress(NotFound):
        job(databases, id_, scope=scope)
        return True
    return False


def _checked_ids(given: object) -> list[int]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise InvalidInput("ids", f"a list of ids is needed, not {shown(given)}")
    ids = list(dict.fromkeys(checked_job_id(each, "ids") for each in given))
    if not 1 <= len(ids) <= MOST_NAMED:
        raise InvalidInput("ids", f"{len(ids)} are named; give 1 to {MOST_NAMED}, or a filter for more")
    return ids
