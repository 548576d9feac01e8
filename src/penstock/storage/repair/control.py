"""What a person does to jobs: cancel, retry, reschedule, purge; of one job, of a list, of all of a queue and state.
And to a key that is halted: release it.

Each act is a short transaction and takes a bounded batch. A job that ends takes its children with it, and a dead letter
that is retried brings them back: what becomes of them is decided after the commit, by `unblock`. Jobs that move while
they are looked for are looked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from typing import Any

import msgspec

from penstock.errors import InvalidInput, PenstockError
from penstock.model.job_state import FINAL, State
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.enqueue.job_group import RANGE
from penstock.storage.enqueue.receipts import newest_id
from penstock.storage.inspect.jobs import find_job
from penstock.storage.inspect.selection import Selection, looks
from penstock.storage.upkeep.sweep import MOST_CHILDREN, children_of, unblock

__all__ = [
    "BY_CANCEL",
    "BY_PURGE",
    "Cancelled",
    "bury_dead",
    "cancel_job",
    "cancel_jobs",
    "clear_dead",
    "is_dead",
    "purge",
    "release_key",
    "reschedule_job",
    "retry_dead",
    "retry_edited",
    "retry_job",
    "retry_scheduled",
]

# Why jobs were cancelled, where nobody says more.
BY_CANCEL = "cancelled by app.cancel"
BY_PURGE = "cancelled by app.purge"
# Rows a purge takes at once: up to two million jobs where the ranges are full.
_ROWS = 2_000
_TRIES = 20
# The order of what was carried here from another shard begins below zero: see @schema@.carried_pos.
_LOWEST = -(1 << 53)


@dataclass(slots=True)
class Cancelled:
    """What became of a cancel: jobs that waited have ended, running ones were asked to stop."""

    ended: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)


def cancel_jobs(connection: Connection, ids: Sequence[int], reason: str = BY_CANCEL, *, asks: bool = True) -> Cancelled:
    """Cancel these jobs; those in neither list have ended, are unknown, or moved just now.

    Running ones are asked to stop, or left alone where `asks` is false. The reason is kept with each.
    """
    bitmaps: dict[int, list[str]] = {}
    for id_ in sorted(ids):
        bitmaps.setdefault(id_ // RANGE, ["0"] * RANGE)[id_ % RANGE] = "1"
    rows = connection.execute(
        query("cancel_in_ranges"),
        {
            "ranges": array_text(bitmaps),
            "members": "{" + ",".join("".join(bits) for bits in bitmaps.values()) + "}",
            "reason": reason,
            "asks": asks,
        },
    ).fetchall()
    result = Cancelled()
    for number, ended, asked in rows:
        result.ended += [number * RANGE + p for p, bit in enumerate(ended) if bit == "1"]
        result.asked += [number * RANGE + p for p, bit in enumerate(asked) if bit == "1"]
    if result.ended:
        tell_children(connection, sorted({id_ // RANGE for id_ in result.ended}))
    return result


def cancel_job(connection: Connection, job_id: int, reason: str = BY_CANCEL) -> State:
    """Cancel one job; CANCELLED, RUNNING where it was asked to stop, or the state it had ended in. NotFound."""

    def attempt() -> State | None:
        done = cancel_jobs(connection, [job_id], reason)
        return State.CANCELLED if done.ended else State.RUNNING if done.asked else None

    return _until_settled(connection, job_id, attempt, FINAL)


def retry_dead(connection: Connection, ids: Sequence[int]) -> list[int]:
    """Make these dead letters ready again; those that were. What was cancelled for them waits again."""
    retried = [row[0] for row in connection.execute(query("retry_dead"), {"ids": array_text(ids)})]
    _tell_children_of(connection, retried)
    return retried


def retry_scheduled(connection: Connection, ids: Sequence[int]) -> int:
    """Make jobs that wait for a time ready now; how many were."""
    row = connection.execute(query("make_scheduled_ready"), {"ids": array_text(sorted(ids))}).fetchone()
    return int(row[0]) if row else 0


def retry_job(connection: Connection, job_id: int) -> State:
    """Make a dead letter, a job that waits for a time, or one that was set aside ready now; the state it is in after.

    NotFound.
    """

    def attempt() -> State | None:
        if retry_dead(connection, [job_id]):
            return State.READY
        row = connection.execute(query("let_back"), {"id": job_id}).fetchone()
        if row is not None and row[0] == "missing":
            raise PenstockError(
                f"job {job_id} was set aside, for it is in no table of jobs: bring its row back, or cancel the job"
            )
        if row is not None and row[0] is not None:
            return State(row[0])
        state = find_job(connection, job_id).state
        if state is State.SCHEDULED:
            return _reschedule(connection, job_id, None)
        return None if state is State.FAILED and is_dead(connection, job_id) else state

    return _until_settled(connection, job_id, attempt, frozenset())


def retry_edited(
    connection: Connection, job_id: int, args: bytes, edited_by: str, *, is_repeated: bool = False
) -> State:
    """Make a dead letter ready again, with other arguments; the state it is in after. NotFound.

    Refused where it is no dead letter. `is_repeated`: the answer to an earlier try was lost, which may have done it; it
    has where the job has these arguments.
    """

    def attempt() -> State | None:
        given = {"id": job_id, "args": args.decode(), "by": edited_by}
        row = connection.execute(query("retry_dead_edited"), given).fetchone()
        if row is not None and row[0]:
            _tell_children_of(connection, [job_id])
            return State.READY
        found = find_job(connection, job_id)
        if found.state is State.FAILED and is_dead(connection, job_id):
            return None
        if not is_repeated or found.args != msgspec.json.decode(args):
            raise InvalidInput(
                "args",
                f"job {job_id} is {found.state}, and only a dead letter's arguments can be changed: enqueue another, "
                "or retry it without args",
            )
        return found.state

    return _until_settled(connection, job_id, attempt, frozenset())


def reschedule_job(connection: Connection, job_id: int, run_at: datetime) -> State:
    """Move a waiting job to another time; the state it is in after. NotFound."""
    done = FINAL | {State.RUNNING}
    return _until_settled(connection, job_id, lambda: _reschedule(connection, job_id, run_at), done)


def purge(
    connection: Connection,
    partitions: Sequence[int],
    state: State,
    reason: str = BY_PURGE,
    *,
    may_go_on: Callable[[], bool] = lambda: True,
) -> int:
    """End all jobs of these partitions that wait in this state, as cancelled; clear their dead letters. How many.

    Jobs enqueued after it began are not touched, so that it comes to an end under any load. Each batch is asked
    whether it `may_go_on`.
    """
    if state is State.FAILED:
        letters = Selection(partitions=tuple(partitions), state=state, can_retry=True)
        found_letters = takewhile(lambda _: may_go_on(), looks(connection, letters))
        return sum(clear_dead(connection, found.ids) for found in found_letters if found.ids)
    until = newest_id(connection) // RANGE
    total = 0
    children: set[int] = set()
    # Again until nothing is found: rows that a claim has locked just then are passed over.
    where = {"until": until, "reason": reason}
    while may_go_on() and (
        found := sum(
            _purge_partition(connection, {**where, "partition": each}, state, children, may_go_on)
            for each in partitions
        )
    ):
        total += found
    # Not before: a child that is let go to wait in this state would be met by the purge that let it go.
    unblock(connection, sorted(children))
    return total


def bury_dead(connection: Connection, ids: Sequence[int]) -> int:
    """Turn these dead letters into history; how many were."""
    row = connection.execute(query("bury_dead"), {"ids": array_text(ids)}).fetchone()
    return int(row[0]) if row else 0


def clear_dead(connection: Connection, ids: Sequence[int]) -> int:
    """The same as a person does it: what was cancelled for them stays cancelled. How many they were."""
    buried = bury_dead(connection, ids)
    _tell_children_of(connection, ids)
    return buried


def release_key(connection: Connection, queue_id: int, key: bytes) -> bool:
    """Let a halted key go on; whether it was halted."""
    row = connection.execute(query("release_key"), {"queue": queue_id, "key": key}).fetchone()
    return bool(row and row[0])


def tell_children(connection: Connection, ranges: Sequence[int]) -> None:
    """Let the children of ended jobs of these ranges go, or end with them."""
    if children := _children_of(connection, ranges):
        unblock(connection, children)


def _children_of(connection: Connection, ranges: Sequence[int]) -> list[int]:
    rows = connection.execute(query("children_of_ranges"), {"ranges": array_text(ranges)}).fetchall()
    return list({child for _, child in rows})


def _purge_partition(
    connection: Connection, where: dict[str, Any], state: State, children: set[int], may_go_on: Callable[[], bool]
) -> int:
    if state is not State.READY:
        name = "purge_scheduled" if state is State.SCHEDULED else "purge_blocked"
        return _purge(connection, name, where, children, may_go_on)
    levels = ({**where, "priority": priority} for priority in range(10))
    in_order = sum(_purge(connection, "purge_ready", level, children, may_go_on) for level in levels)
    return in_order + _purge(connection, "purge_parked", where, children, may_go_on)


def _purge(
    connection: Connection, name: str, where: dict[str, Any], children: set[int], may_go_on: Callable[[], bool]
) -> int:
    """One kind of row to the end; how many jobs. Their children are added to those given."""
    total, start = 0, _LOWEST
    while True:
        if not may_go_on():
            return total
        row = connection.execute(query(name), {**where, "from": start, "limit": _ROWS}).fetchone()
        if row is None or row[0] is None:
            return total
        start, jobs, ranges = row
        total += jobs
        children.update(_children_of(connection, ranges))


def _tell_children_of(connection: Connection, ids: Sequence[int]) -> None:
    """Look at the children of dead letters that were retried or buried, and theirs. Of very many the rest is upkeep's:
    the call would take too long.
    """
    if children := children_of(connection, ids):
        unblock(connection, children, most=MOST_CHILDREN)


def is_dead(connection: Connection, job_id: int) -> bool:
    """Whether a job is a dead letter, and no history yet."""
    row = connection.execute(query("look_at_dead"), {"before": job_id + 1, "looks": 1}).fetchone()
    return row is not None and row[0] == job_id


def _reschedule(connection: Connection, job_id: int, run_at: datetime | None) -> State | None:
    row = connection.execute(query("reschedule_job"), {"id": job_id, "run_at": run_at}).fetchone()
    return State(row[0]) if row is not None and row[0] is not None else None


def _until_settled(
    connection: Connection, job_id: int, attempt: Callable[[], State | None], settled: frozenset[State]
) -> State:
    """Try until it worked, or the job is found in a state in which there is nothing to do."""
    for _ in range(_TRIES):
        state = attempt()
        if state is not None:
            return state
        state = find_job(connection, job_id).state
        if state in settled:
            return state
    raise PenstockError(f"job {job_id} moved each of the {_TRIES} times it was looked for; call again")
