"""What the owner of a partition asks the database: its share of the partitions, what waits in one, leases for what it
chose.

A look is one snapshot: the rows not read so far, what others still run, which retries hold their keys. Rows are found
by place, from where the last look ended, and those that were written since before that place by the transaction that
wrote them: each is read once, and none is passed over because its transaction committed late.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString, NamedTuple

import psycopg

from penstock.model.rules import QueueRules
from penstock.storage.catalogue.queues import rules_of
from penstock.storage.catalogue.resize import OpenMaps
from penstock.storage.connection.arrays import array_text, members_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.enqueue.write import RANGE
from penstock.storage.work.claim import Stored, members_of, read_facts

__all__ = [
    "Choice",
    "Holding",
    "JobFacts",
    "Look",
    "LookWish",
    "ReadyRow",
    "choice_parameters",
    "give_up",
    "has_work_of_others",
    "leave_crews",
    "look",
    "note_quiet",
    "only_key",
    "read_partitions",
    "read_queue_rules",
    "read_waiting",
    "share",
    "still_ready",
]


Cursor = psycopg.Cursor[tuple[Any, ...]]


class Holding(NamedTuple):
    """A partition that a worker owns; surplus: more than its share."""

    partition_id: int
    queue_id: int
    epoch: int
    is_surplus: bool


class ReadyRow(NamedTuple):
    """A range, or part of one, that is ready."""

    priority: int
    pos: int
    range: int
    low: int
    high: int
    members: str | None
    attempt: int
    rescues: int
    epoch: int
    ready_at: float

    @property
    def positions(self) -> Sequence[int]:
        return members_of(self.low, self.high, self.members)


class JobFacts(NamedTuple):
    """What decides when a job may start."""

    id: int
    key: bytes | None
    task: str
    tenant: str | None


@dataclass(slots=True)
class LookWish:
    """What to look for: from the places given, one a priority; and what is new since a snapshot."""

    holding: Holding
    before: str | None
    places: Sequence[int]
    rows: int
    # Also what anybody runs, which retries hold their keys, which keys are halted.
    with_others: bool


@dataclass(slots=True)
class Look:
    """What one snapshot showed; the lists about others are None where they were not asked for."""

    as_of: str
    # Which server's snapshot that is.
    server: str
    rows: list[ReadyRow] = field(default_factory=list)
    # By priority: how many rows came of those not read so far, and the place after the last of them.
    found: list[int] = field(default_factory=lambda: [0] * 10)
    ends: list[int] = field(default_factory=lambda: [0] * 10)
    running: list[tuple[int, bytes | None]] | None = None
    # Of those that run, the ones that may come back without having started.
    unstarted: set[int] = field(default_factory=set)
    held: list[tuple[int, bytes | None]] | None = None
    halted: list[bytes] | None = None
    maps: OpenMaps | None = None


@dataclass(slots=True)
class Choice:
    """Jobs of one partition that may start, as ranges and maps of members; flagged are those beyond the slots.

    `owner` is the worker that owns the partition, and chose. Who is given the leases may be another.
    """

    owner: int
    partition_id: int
    epoch: int
    # Where it was looked at what may start: on another server nothing of it is leased.
    server: str
    jobs: list[int]
    parts: list[tuple[int, str, bool]]

    @classmethod
    def of(cls, owner: int, partition_id: int, epoch: int, server: str, jobs: Sequence[int], slots: int) -> Choice:
        """The first `slots` of the jobs start at once, the others within moments."""
        parts = []
        for is_ahead, some in ((False, jobs[:slots]), (True, jobs[slots:])):
            by_range: dict[int, list[int]] = {}
            for job in some:
                by_range.setdefault(job // RANGE, []).append(job % RANGE)
            parts += [(number, members_text(positions), is_ahead) for number, positions in by_range.items()]
        return cls(owner, partition_id, epoch, server, list(jobs), parts)


def choice_parameters(holder: int, token: int, choices: Sequence[Choice]) -> dict[str, Any]:
    """What penstock.lease_chosen takes; the choices are one owner's, made from looks at one server."""
    parts = [part for choice in choices for part in choice.parts]
    return {
        "owner": choices[0].owner,
        "holder": holder,
        "token": token,
        "server": choices[0].server,
        "partitions": array_text([choice.partition_id for choice in choices]),
        "epochs": array_text([choice.epoch for choice in choices]),
        "ranges": array_text([number for number, _, _ in parts]),
        "masks": array_text([mask for _, mask, _ in parts]),
        "aheads": array_text(["t" if is_ahead else "f" for _, _, is_ahead in parts]),
    }


def share(connection: Connection, worker: int) -> list[Holding]:
    """Take what is due to this worker; all that it holds."""
    return [Holding(*row) for row in connection.execute(query("share_partitions"), {"worker": worker}).fetchall()]


def give_up(connection: Connection, worker: int, partitions: Iterable[int]) -> None:
    """Let others have these partitions."""
    connection.execute(query("give_up_partitions"), {"worker": worker, "partitions": array_text(partitions)})


def leave_crews(connection: Connection, worker: int, queues: Iterable[int]) -> None:
    """Take no share of these queues any more."""
    connection.execute(query("leave_crews"), {"worker": worker, "queues": array_text(queues)})


def look(connection: Connection, wishes: Sequence[LookWish]) -> list[Look]:
    """Look at some partitions in one snapshot."""
    with connection.pipeline():
        connection.execute("begin isolation level repeatable read read only")
        connection.execute(query("hold_tables_of_jobs"))
        as_of = connection.execute(query("read_snapshot"))
        asked = [_ask(connection, wish) for wish in wishes]
        maps = {
            queue: connection.execute(query("open_maps"), {"queue": queue})
            for queue in {wish.holding.queue_id for wish in wishes if wish.with_others}
        }
        connection.execute("commit")
    snapshot = as_of.fetchone()
    maps_of = {queue: OpenMaps.of(cursor.fetchall()) for queue, cursor in maps.items()}
    assert snapshot is not None  # noqa: S101
    as_of_snapshot, server = snapshot
    looks = [_answer(as_of_snapshot, server, cursors) for cursors in asked]
    for wish, seen in zip(wishes, looks, strict=True):
        if wish.with_others:
            seen.maps = maps_of[wish.holding.queue_id]
    return looks


def _ask(connection: Connection, wish: LookWish) -> dict[str, Cursor]:
    holding = wish.holding
    where = {"partition": holding.partition_id, "queue": holding.queue_id, "from": array_text(wish.places)}
    cursors = {"next": connection.execute(query("read_next_rows"), {**where, "rows": wish.rows})}
    if wish.before is not None:
        cursors["new"] = connection.execute(query("read_new_rows"), {**where, "before": wish.before})
    if wish.with_others:
        cursors["running"] = connection.execute(query("read_running"), where)
        cursors["held"] = connection.execute(query("read_held"), where)
        cursors["halted"] = connection.execute(query("read_halted"), where)
    return cursors


def _answer(as_of: str, server: str, cursors: dict[str, Cursor]) -> Look:
    seen = Look(as_of, server)
    if "new" in cursors:
        seen.rows = [ReadyRow(*row) for row in cursors["new"].fetchall()]
    for row in cursors["next"].fetchall():
        each = ReadyRow(*row)
        seen.rows.append(each)
        seen.found[each.priority] += 1
        seen.ends[each.priority] = each.pos + 1
    if "running" in cursors:
        running = cursors["running"].fetchall()
        seen.running = [(job, key) for job, key, _ in running]
        seen.unstarted = {job for job, _, is_unstarted in running if is_unstarted}
        seen.held = [(job, key) for job, key in cursors["held"].fetchall()]
        seen.halted = [row[0] for row in cursors["halted"].fetchall()]
    return seen


def only_key(connection: Connection, rows: Sequence[ReadyRow]) -> dict[tuple[int, int], JobFacts]:
    """Of whole spans, those whose jobs are all of one key, task and tenant: their facts, by first and last job."""
    if not rows:
        return {}
    parameters = {
        "lows": array_text([row.range * RANGE + row.low for row in rows]),
        "highs": array_text([row.range * RANGE + row.high for row in rows]),
    }
    found = connection.execute(query("only_key"), parameters).fetchall()
    return {(low, high - 1): JobFacts(low, key, task, tenant) for low, high, key, task, tenant in found}


def read_waiting(connection: Connection, rows: Sequence[ReadyRow], *, with_args: bool, with_tenant: bool) -> Stored:
    """The jobs of these rows, by id: as a worker starts them (id, args, key, attributes, task), and the tenant.

    Arguments that are long are left out, to be read when the job starts.
    """
    tenant: LiteralString = "attributes ->> 'tenant'" if with_tenant else "null::text"
    stored: LiteralString = (
        "id, case when pg_column_size(args) < 2000 then args::text end, key, attributes::text, task"
        if with_args
        else "id, null::text, key, null::text, task"
    )
    return read_facts(connection, stored + ", " + tenant, rows)


def note_quiet(connection: Connection, worker: int, holding: Holding, as_of: str, server: str) -> None:
    """Say that nothing of a partition could start, as of a snapshot of this server."""
    connection.execute(
        query("note_quiet"),
        {
            "worker": worker,
            "partition": holding.partition_id,
            "epoch": holding.epoch,
            "as_of": as_of,
            "server": server,
        },
    )


def has_work_of_others(connection: Connection, worker: int) -> bool:
    """Whether partitions that this worker does not hold have jobs that could start."""
    row = connection.execute(query("has_work_of_others"), {"worker": worker}).fetchone()
    return bool(row and row[0])


def read_queue_rules(connection: Connection, queues: Iterable[int]) -> dict[int, tuple[QueueRules, bool]]:
    """The rules of these queues, and whether there are some that this program does not know and must not ignore."""
    rows = connection.execute(query("read_queue_rules"), {"queues": array_text(queues)}).fetchall()
    found = {}
    for queue, rules, weights, is_paused in rows:
        stored = json.loads(rules)
        found[queue] = rules_of(stored, weights, is_paused), bool(QueueRules.unknown_in(stored))
    return found


def read_partitions(connection: Connection, queues: Iterable[int]) -> list[tuple[int, int]]:
    """Every partition of these queues, with its queue."""
    rows = connection.execute(query("read_partitions"), {"queues": array_text(queues)}).fetchall()
    return [(partition, queue) for partition, queue in rows]


def still_ready(connection: Connection, partition: int, jobs: Iterable[int]) -> set[int]:
    """Which of these jobs are still ready in a partition."""
    rows = connection.execute(query("still_ready"), {"partition": partition, "jobs": array_text(jobs)}).fetchall()
    return {row[0] for row in rows}
