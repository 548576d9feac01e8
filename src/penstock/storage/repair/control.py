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

from penstock.errors import PenstockError
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
    "Cancelled",
    "bury_dead",
    "cancel_job",
    "cancel_jobs",
    "purge",
    "release_key",
    "reschedule_job",
    "retry_dead",
    "retry_job",
    "retry_scheduled",
]

# Rows a purge takes at once: up to two million jobs where the ranges are full.
_ROWS = 2_000
_TRIES = 20


@dataclass(slots=True)
class Cancelled:
    """What became of a cancel: jobs that waited have ended, running ones were asked to stop."""

    ended: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)


def cancel_jobs(connection: Connection, ids: Sequence[int]) -> Cancelled:
    """Cancel these jobs; those in neither list have ended, are unknown, or moved just now."""
    bitmaps: dict[int, list[str]] = {}
    for id_ in sorted(ids):
        bitmaps.setdefault(id_ // RANGE, ["0"] * RANGE)[id_ % RANGE] = "1"
    rows = connection.execute(
        query("cancel_in_ranges"),
        {"ranges": array_text(bitmaps), "members": "{" + ",".join("".join(bits) for bits in bitmaps.values()) + "}"},
    ).fetchall()
    result = Cancelled()
    for number, ended, asked in rows:
        result.ended += [number * RANGE + p for p, bit in enumerate(ended) if bit == "1"]
        result.asked += [number * RANGE + p for p, bit in enumerate(asked) if bit == "1"]
    if result.ended:
        tell_children(connection, sorted({id_ // RANGE for id_ in result.ended}))
    return result


def cancel_job(connection: Connection, job_id: int) -> State:
    """Cancel one job; CANCELLED, RUNNING where it was asked to stop, or the state it had ended in. NotFound."""

    def attempt() -> State | None:
        done = cancel_jobs(connection, [job_id])
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
        return None if state is State.FAILED and _is_dead(connection, job_id) else state

    return _until_settled(connection, job_id, attempt, frozenset())


def reschedule_job(connection: Connection, job_id: int, run_at: datetime) -> State:
    """Move a waiting job to another time; the state it is in after. NotFound."""
    done = FINAL | {State.RUNNING}
    return _until_settled(connection, job_id, lambda: _reschedule(connection, job_id, run_at), done)


def purge(connection: Connection, partitions: Sequence[int], state: State) -> int:
    """End all jobs of these partitions that wait in this state, as cancelled; bury their dead letters. How many.

    Jobs enqueued after it began are not touched, so that it comes to an end under any load.
    """
    if state is State.FAILED:
        return _bury_all(connection, Selection(partitions=tuple(partitions), state=state, can_retry=True))
    until = newest_id(connection) // RANGE
    total = 0
    children: set[int] = set()
    # Again until nothing is found: rows that a claim has locked just then are passed over.
    while found := sum(_purge_partition(connection, partition, state, until, children) for partition in partitions):
        total += found
    # Not before: a child that is let go to wait in this state would be met by the purge that let it go.
    unblock(connection, sorted(children))
    return total


def bury_dead(connection: Connection, ids: Sequence[int]) -> int:
    """Turn these dead letters into history; how many were."""
    row = connection.execute(query("bury_dead"), {"ids": array_text(ids)}).fetchone()
    return int(row[0]) if row else 0


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


def _purge_partition(connection: Connection, partition: int, state: State, until: int, children: set[int]) -> int:
    where = {"partition": partition, "until": until}
    if state is not State.READY:
        name = "purge_scheduled" if state is State.SCHEDULED else "purge_blocked"
        return _purge(connection, name, where, children)
    levels = ({**where, "priority": priority} for priority in range(10))
    in_order = sum(_purge(connection, "purge_ready", level, children) for level in levels)
    return in_order + _purge(connection, "purge_parked", where, children)


def _purge(connection: Connection, name: str, where: dict[str, int], children: set[int]) -> int:
    """One kind of row to the end; how many jobs. Their children are added to those given."""
    total, start = 0, 0
    while True:
        row = connection.execute(query(name), {**where, "from": start, "limit": _ROWS}).fetchone()
        if row is None or row[0] is None:
            return total
        start, jobs, ranges = row
        total += jobs
        children.update(_children_of(connection, ranges))


def _bury_all(connection: Connection, selection: Selection) -> int:
    buried = 0
    for found in looks(connection, selection):
        if found.ids:
            buried += bury_dead(connection, found.ids)
            _tell_children_of(connection, found.ids)
    return buried


def _tell_children_of(connection: Connection, ids: Sequence[int]) -> None:
    """Look at the children of dead letters that were retried or buried, and theirs. Of very many the rest is upkeep's:
    the call would take too long.
    """
    if children := children_of(connection, ids):
        unblock(connection, children, most=MOST_CHILDREN)


def _is_dead(connection: Connection, job_id: int) -> bool:
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
