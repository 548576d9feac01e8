"""Choosing jobs by what they are, newest first, in bounded looks.

A look is driven by the table of the state that is asked for, through an index, so that a queue with millions waiting
shows its newest as fast as an empty one; a look at a queue in any state goes through all of these tables, one at all
queues through the jobs themselves. Each look reads a bounded number of rows and says where the next one goes on: a
filter that matches little (a rare tag, a queue with little history beside busy ones) takes more looks, never one that
scans without end.

Who wants some jobs only is given them by a first look that reads little more than those. One of full size reads what
there is up to its bounds: it would take the longer the more waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from penstock.model.checks import HIGHEST_ID
from penstock.model.job_state import OUTCOME, State
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.enqueue.job_group import RANGE

__all__ = ["FULL_LOOK", "FoundIds", "LookSize", "Selection", "looks"]


class LookSize(NamedTuple):
    """What one look reads at most: jobs, to give them or to see whether they match; rows of an index by range; and of
    history, which has no index by queue.
    """

    jobs: int
    ranges: int
    history: int


# More rows than the 1,024 that one range can be split into: such a look always comes further.
FULL_LOOK = LookSize(jobs=5_000, ranges=5_000, history=20_000)
# Ranges of a load, which are mostly full.
_LOAD_RANGES = 5


class _Ranges(NamedTuple):
    """Of a state whose rows are ranges: the look at them, the same of some partitions where an index has it, and the
    query for their jobs.
    """

    look: str
    look_of_partitions: str
    members: str


_RANGES_OF = {
    State.READY: _Ranges("look_at_ready", "look_at_ready_of_partitions", "ready_members"),
    State.RUNNING: _Ranges("look_at_running", "look_at_running", "running_members"),
    State.SCHEDULED: _Ranges("look_at_scheduled", "look_at_scheduled_of_partitions", "scheduled_members"),
}
_ENDED = _Ranges("look_at_finished", "look_at_finished", "finished_members")
# Of what has a row for each job: the look, and the same of some partitions.
_BLOCKED = ("look_at_blocked", "look_at_blocked_of_partitions")
_DEAD = ("look_at_dead", "look_at_dead_of_partitions")
_DEAD_OF_CAUSE = ("look_at_dead_of_cause", "look_at_dead_of_cause")
_OUTBOX = ("look_at_outbox", "look_at_outbox_of_partitions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which jobs are meant; None is any. `is_partition`: the partitions are the places of one, not those of a queue.
    `cause`: which dead letters, of the failed. `can_retry`: of these, only those that still are dead letters.
    """

    partitions: tuple[int, ...] | None = None
    is_partition: bool = False
    state: State | None = None
    task: str | None = None
    key: bytes | None = None
    load: str | None = None
    tag: str | None = None
    tenant: str | None = None
    created_by: str | None = None
    cause: int | None = None
    can_retry: bool = False

    @property
    def reads_no_job(self) -> bool:
        """Whether only the queue, the partition, the state and the cause are asked for: no job needs to be read."""
        told = (self.task, self.key, self.load, self.tag, self.tenant, self.created_by)
        return all(each is None for each in told)

    def parameters(self) -> dict[str, Any]:
        """The filters as the queries take them."""
        named = {"tenant": self.tenant, "created_by": self.created_by, "tags": self.tag and [self.tag]}
        attributes = {name: value for name, value in named.items() if value is not None}
        return {
            "partitions": None if self.partitions is None else array_text(self.partitions),
            "task": self.task,
            "key": self.key,
            "load": self.load,
            "cause": self.cause,
            "attributes": msgspec.json.encode(attributes).decode() if attributes else None,
        }


class FoundIds(NamedTuple):
    """Ids that match, newest first; all from `floor` up are done, None: to the end."""

    ids: list[int]
    floor: int | None


def looks(
    connection: Connection, selection: Selection, before: int | None = None, *, enough: int | None = None
) -> Iterator[FoundIds]:
    """Look after look until the end. Jobs enqueued meanwhile are not met. `enough`: after so many jobs whoever asks may
    stop, and the first look is a small one, which may find fewer or none.
    """
    upper: int | None = before if before is not None else HIGHEST_ID
    size = FULL_LOOK if enough is None else _size_for(selection, enough)
    while upper is not None:
        found = _look(connection, selection, upper, size)
        yield found
        upper, size = found.floor, FULL_LOOK


def _size_for(selection: Selection, jobs: int) -> LookSize:
    """What gives so many jobs, where few ranges are split and a filter leaves out no more than half."""
    read = jobs if selection.reads_no_job else 2 * jobs
    return LookSize(min(read, FULL_LOOK.jobs), min(2 * read, FULL_LOOK.ranges), min(8 * read, FULL_LOOK.history))


def _look(connection: Connection, selection: Selection, before: int, size: LookSize) -> FoundIds:
    """One bounded look at jobs with ids below `before`."""
    if selection.state is not None:
        found = _look_at_state(connection, selection, selection.state, before, size)
    elif selection.load is not None and not selection.is_partition:
        return _look_at_load(connection, selection, before)
    elif selection.partitions is not None:
        found = _merge([_look_at_state(connection, selection, state, before, size) for state in State])
    else:
        return _look_at_jobs(connection, selection, before, size)
    if selection.reads_no_job or not found.ids:
        return found
    if len(found.ids) > size.jobs:
        found = FoundIds(found.ids[: size.jobs], found.ids[size.jobs - 1])
    rows = connection.execute(
        query("narrow_jobs"), {**selection.parameters(), "ids": array_text(found.ids)}, prepare=False
    ).fetchall()
    return found._replace(ids=sorted({row[0] for row in rows}, reverse=True))


def _look_at_jobs(connection: Connection, selection: Selection, before: int, size: LookSize) -> FoundIds:
    row = connection.execute(
        query("look_at_jobs"), {**selection.parameters(), "before": before, "looks": size.jobs}, prepare=False
    ).fetchone()
    assert row is not None  # noqa: S101
    looked_at, least, ids = row
    return FoundIds(ids, least if looked_at == size.jobs else None)


def _look_at_load(connection: Connection, selection: Selection, before: int) -> FoundIds:
    row = connection.execute(
        query("look_at_load"),
        {**selection.parameters(), "top": (before - 1) // RANGE, "looks": _LOAD_RANGES},
        prepare=False,
    ).fetchone()
    assert row is not None  # noqa: S101
    cut_at, ids = row
    return FoundIds([id_ for id_ in ids if id_ < before], None if cut_at is None else cut_at * RANGE)


def _look_at_state(connection: Connection, selection: Selection, state: State, before: int, size: LookSize) -> FoundIds:
    if state is State.BLOCKED:
        return _look_at_ids(connection, _BLOCKED, selection, before, size)
    if state is State.CANCELLED:
        for_now = _look_at_ids(connection, _BLOCKED, selection, before, size, is_cancelled=True)
        return _merge([for_now, _look_at_ranges(connection, selection, state, before, size)])
    if state is State.FAILED and selection.cause is not None:
        return _look_at_ids(connection, _DEAD_OF_CAUSE, selection, before, size)
    if state is State.FAILED:
        dead = _look_at_ids(connection, _DEAD, selection, before, size)
        if selection.can_retry:
            return dead
        return _merge([dead, _look_at_ranges(connection, selection, state, before, size)])
    found = _look_at_ranges(connection, selection, state, before, size)
    if state is not State.READY:
        return found
    # What is on its way to another shard waits as what is ready does.
    return _merge([found, _look_at_ids(connection, _OUTBOX, selection, before, size)])


def _look_at_ids(
    connection: Connection,
    names: tuple[str, str],
    selection: Selection,
    before: int,
    size: LookSize,
    *,
    is_cancelled: bool = False,
) -> FoundIds:
    rows = connection.execute(
        query(names[selection.partitions is not None]),
        {**selection.parameters(), "before": before, "looks": size.jobs, "is_cancelled": is_cancelled},
    ).fetchall()
    ids = [id_ for id_, is_meant in rows if is_meant]
    return FoundIds(ids, rows[-1][0] if len(rows) == size.jobs else None)


def _look_at_ranges(
    connection: Connection, selection: Selection, state: State, before: int, size: LookSize
) -> FoundIds:
    source = _RANGES_OF.get(state, _ENDED)
    parameters = {**selection.parameters(), "outcome": OUTCOME.get(state)}
    row = connection.execute(
        query(source.look if selection.partitions is None else source.look_of_partitions),
        {**parameters, "top": (before - 1) // RANGE, "looks": size.history if source is _ENDED else size.ranges},
    ).fetchone()
    assert row is not None  # noqa: S101
    cut_at, ranges, sizes = row
    picked, floor = _pick(ranges or [], sizes or [], cut_at, size.jobs)
    if floor is not None:
        # A small look may be cut within the first range: then the next one starts where this one did.
        floor = min(floor, before)
    if not picked:
        return FoundIds([], floor)
    rows = connection.execute(query(source.members), {**parameters, "ranges": array_text(picked)}).fetchall()
    ids = sorted({row[0] for row in rows if row[0] < before}, reverse=True)
    return FoundIds(ids, floor)


def _pick(ranges: Sequence[int], sizes: Sequence[int], cut_at: int | None, jobs: int) -> tuple[list[int], int | None]:
    """The newest ranges, whole, that hold so many jobs; and the id the next look goes on below.

    At the range where a look was cut, and below it, rows may be missing.
    """
    picked: dict[int, int] = {}
    missing = jobs
    for number, size in zip(ranges, sizes, strict=True):
        if cut_at is not None and number <= cut_at:
            break
        if number not in picked and missing <= 0:
            return list(picked), min(picked) * RANGE
        picked[number] = size
        missing -= size
    return list(picked), None if cut_at is None else (cut_at + 1) * RANGE


def _merge(found: Sequence[FoundIds]) -> FoundIds:
    floor = max(each.floor or 0 for each in found)
    ids = sorted({id_ for each in found for id_ in each.ids if id_ >= floor}, reverse=True)
    return FoundIds(ids, floor or None)
