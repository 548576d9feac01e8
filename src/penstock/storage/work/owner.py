"""What the owner of a partition asks the database: its share of the partitions, what waits in one, leases for what it
chose.

A look is one snapshot: the rows not read so far, what others still run, which retries hold their keys. Rows are found
in the order of the partition (`ready.pos`), from where the last look ended. A transaction that commits late writes rows
before that point: those are found by the transaction that wrote them. So each row is read once, and none is missed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import psycopg

from penstock.model.rules import QueueRules
from penstock.policy.claim_order import PlacedPartition
from penstock.storage.catalogue.queues import rules_of
from penstock.storage.catalogue.resize import UndrainedKeyMaps
from penstock.storage.connection.arrays import array_text, members_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.one_transaction import one_transaction
from penstock.storage.connection.queries import query
from penstock.storage.enqueue.job_group import RANGE
from penstock.storage.work.leases import RangeMembers, Stored, members_of, read_facts

__all__ = [
    "ChosenJobs",
    "JobFacts",
    "Look",
    "LookWish",
    "News",
    "Ownership",
    "ReadyRow",
    "Stretch",
    "give_up",
    "has_work_of_others",
    "lease_parameters",
    "leave_crews",
    "look",
    "note_idle",
    "read_news",
    "read_partitions",
    "read_queue_rules",
    "read_single_keys",
    "read_waiting",
    "share",
    "still_ready",
]


Cursor = psycopg.Cursor[tuple[Any, ...]]
NO_BATCHES: Mapping[int, Sequence[int]] = MappingProxyType({})


class Ownership(NamedTuple):
    """A partition that a worker owns, in an owner epoch; `is_surplus`: it is more than the worker's share."""

    partition_id: int
    queue_id: int
    owner_epoch: int
    is_surplus: bool
    # How many jobs may run there, where its queue has a total_limit, and may start, where it has a total_rate.
    permits: int | None = None
    tokens: int | None = None

    @property
    def is_counted(self) -> bool:
        """Whether permits or tokens are counted there."""
        return self.permits is not None or self.tokens is not None


class News(NamedTuple):
    """The partitions that something came to, of whomever, and the snapshot and the server that say so."""

    as_of: str
    server: str
    partitions: list[int]


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
    # Of the key map by which its jobs were routed.
    epoch: int
    ready_at: float

    @property
    def is_fresh(self) -> bool:
        """Whether its jobs have never failed, and were never rescued: they may be given to a handler together."""
        return self.attempt == 1 and self.rescues == 0

    @property
    def positions(self) -> Sequence[int]:
        return members_of(self.low, self.high, self.members)


class Stretch(NamedTuple):
    """Jobs of a range that follow each other."""

    range: int
    low: int
    high: int
    members: str | None = None

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
    """What to look for: rows of a partition from `starts` on, one `pos` a priority, and rows newer than a snapshot."""

    ownership: Ownership
    before: str | None
    starts: Sequence[int]
    rows: int
    # Whether to look, too, at what anybody runs, which retries hold their keys, and which keys are halted.
    with_others: bool


@dataclass(slots=True)
class Look:
    """What one snapshot showed; the lists about others are None where they were not asked for."""

    as_of: str
    # Which server's snapshot that is.
    server: str
    rows: list[ReadyRow] = field(default_factory=list)
    # By priority: how many rows came of those not read so far, and the `pos` after the last of them.
    found: list[int] = field(default_factory=lambda: [0] * 10)
    ends: list[int] = field(default_factory=lambda: [0] * 10)
    running: list[tuple[int, bytes | None]] | None = None
    # Those of `running` that may be ready again: leased ahead and not started, or of a worker that is gone.
    unstarted: set[int] = field(default_factory=set)
    held: list[tuple[int, bytes | None]] | None = None
    halted: list[bytes] | None = None
    # How many jobs may run, where the queue has a total_limit, and may start, where it has a total_rate.
    permits: int | None = None
    tokens: int | None = None
    key_maps: UndrainedKeyMaps | None = None

    def add(self, row: ReadyRow, *, is_next: bool) -> None:
        """Take in a row: one of those not read so far, or one that is new before them."""
        self.rows.append(row)
        if is_next:
            is_first = not self.found[row.priority]
            self.found[row.priority] += 1
            self.ends[row.priority] = row.pos + 1 if is_first else max(self.ends[row.priority], row.pos + 1)


@dataclass(slots=True)
class ChosenJobs:
    """Jobs of one partition that its owner lets start. The leases on them may be given to another worker.

    `members` are the same jobs by range: its number, their member bitmap, whether they are ahead, which means that no
    slot is free for them yet, and their batch, which bears the number of its first job.
    """

    owner: int
    partition_id: int
    owner_epoch: int
    # The server that was looked at: on another nothing of it is leased.
    server: str
    jobs: list[int]
    members: list[tuple[int, str, bool, int | None]]
    # Whether permits or tokens are counted there, of a total_limit or total_rate.
    is_counted: bool = False

    @classmethod
    def of(
        cls,
        owner: int,
        ownership: Ownership,
        server: str,
        jobs: Sequence[int],
        slots: int,
        batches: Mapping[int, Sequence[int]] = NO_BATCHES,
        runs: Mapping[int, Sequence[int]] = NO_BATCHES,
        more: Sequence[int] = (),
    ) -> ChosenJobs:
        """The first `slots` of the jobs start at once, the others within moments; with some of them, by `batches`, all
        the jobs of the batch that they are the first of. After those of `runs` start, one after the other, the jobs of
        their run, and `more` after those of runs that have begun.
        """
        members: list[tuple[int, str, bool, int | None]] = []
        followers = [follower for job in jobs for follower in runs.get(job, ())[1:]] if runs else []
        followers += more
        for is_ahead, some in ((False, jobs[:slots]), (True, [*jobs[slots:], *followers])):
            alone = [job for job in some if job not in batches] if batches else some
            members += [(*each, is_ahead, None) for each in _by_range(alone)]
            if batches:
                members += [
                    (*each, is_ahead, job) for job in some if job in batches for each in _by_range(batches[job])
                ]
        every = [member for job in jobs for member in batches.get(job, (job,))] if batches else list(jobs)
        return cls(
            *(owner, ownership.partition_id, ownership.owner_epoch, server, every + followers, members),
            is_counted=ownership.is_counted,
        )

    @property
    def has_batches(self) -> bool:
        """Whether some of the jobs are given to their handler together."""
        return any(batch is not None for _, _, _, batch in self.members)


def _by_range(jobs: Iterable[int]) -> list[tuple[int, str]]:
    """The ranges of jobs, each with its member bitmap."""
    by_range: dict[int, list[int]] = {}
    for job in jobs:
        by_range.setdefault(job // RANGE, []).append(job % RANGE)
    return [(number, members_text(positions)) for number, positions in by_range.items()]


def lease_parameters(holder: int, token: int, choices: Sequence[ChosenJobs]) -> dict[str, Any]:
    """What penstock.lease_chosen takes; the choices are one owner's, made from looks at one server."""
    members = [each for choice in choices for each in choice.members]
    return {
        "owner": choices[0].owner,
        "holder": holder,
        "token": token,
        "server": choices[0].server,
        "partitions": array_text([choice.partition_id for choice in choices]),
        "owner_epochs": array_text([choice.owner_epoch for choice in choices]),
        "counts": array_text([len(choice.jobs) for choice in choices]),
        "ranges": array_text([number for number, _, _, _ in members]),
        "members": array_text([bitmap for _, bitmap, _, _ in members]),
        "aheads": array_text(["t" if is_ahead else "f" for _, _, is_ahead, _ in members]),
        "batches": array_text(["NULL" if batch is None else batch for _, _, _, batch in members]),
    }


def share(connection: Connection, worker: int) -> list[Ownership]:
    """Take ownership of what is due to this worker; all that it owns."""
    return [Ownership(*row) for row in connection.execute(query("share_partitions"), {"worker": worker}).fetchall()]


def give_up(connection: Connection, worker: int, partitions: Iterable[int]) -> None:
    """Let others have these partitions."""
    connection.execute(query("give_up_partitions"), {"worker": worker, "partitions": array_text(partitions)})


def leave_crews(connection: Connection, worker: int, queues: Iterable[int]) -> None:
    """Take no share of these queues any more."""
    connection.execute(query("leave_crews"), {"worker": worker, "queues": array_text(queues)})


def look(connection: Connection, wishes: Sequence[LookWish]) -> list[Look]:
    """Look at some partitions, at each in one snapshot; where others are looked at, at all in the same."""
    if any(wish.with_others or wish.before is None for wish in wishes):
        return _look_at_others(connection, wishes)
    is_one_statement = len(wishes) == 1 and not wishes[0].ownership.is_counted
    with one_transaction(connection, is_one_statement=is_one_statement):
        cursors = [_send_look_for_rows(connection, wish) for wish in wishes]
    return [_read_rows(*each) for each in cursors]


def _look_at_others(connection: Connection, wishes: Sequence[LookWish]) -> list[Look]:
    with connection.pipeline():
        connection.execute(query("begin_snapshot"))
        connection.execute(query("lock_job_tables"))
        as_of = connection.execute(query("read_snapshot"))
        cursors_of = [_send_look(connection, wish) for wish in wishes]
        maps = {
            queue: connection.execute(query("undrained_maps"), {"queue": queue})
            for queue in {wish.ownership.queue_id for wish in wishes if wish.with_others}
        }
        connection.execute(query("commit"))
    snapshot = as_of.fetchone()
    maps_of = {queue: UndrainedKeyMaps.of(cursor.fetchall()) for queue, cursor in maps.items()}
    assert snapshot is not None  # noqa: S101
    as_of_snapshot, server = snapshot
    looks = [_read_look(as_of_snapshot, server, cursors) for cursors in cursors_of]
    for wish, seen in zip(wishes, looks, strict=True):
        if wish.with_others:
            seen.key_maps = maps_of[wish.ownership.queue_id]
    return looks


def read_news(connection: Connection, before: str | None) -> News:
    """Where something came since a snapshot; without one, where anything is ready."""
    row = connection.execute(query("read_news" if before else "list_ready"), {"before": before}).fetchone()
    assert row is not None  # noqa: S101
    return News(*row)


def _where(wish: LookWish) -> dict[str, Any]:
    ownership = wish.ownership
    return {"partition": ownership.partition_id, "queue": ownership.queue_id, "starts": array_text(wish.starts)}


def _send_look_for_rows(connection: Connection, wish: LookWish) -> tuple[Cursor, Cursor | None]:
    where = _where(wish)
    rows = connection.execute(query("read_rows"), {**where, "rows": wish.rows, "before": wish.before})
    return rows, connection.execute(query("read_permits"), where) if wish.ownership.is_counted else None


def _read_rows(cursor: Cursor, permits: Cursor | None) -> Look:
    rows = cursor.fetchall()
    as_of, server = rows[0][:2]
    seen = Look(as_of, server)
    for _, _, is_next, *row in rows:
        # One without a row says that there is none.
        if is_next is not None:
            seen.add(ReadyRow(*row), is_next=is_next)
    if permits is not None:
        ((seen.permits, seen.tokens),) = permits.fetchall()
    return seen


def _send_look(connection: Connection, wish: LookWish) -> dict[str, Cursor]:
    ownership, where = wish.ownership, _where(wish)
    cursors = {"next": connection.execute(query("read_next_rows"), {**where, "rows": wish.rows})}
    if wish.before is not None:
        cursors["new"] = connection.execute(query("read_new_rows"), {**where, "before": wish.before})
    if ownership.is_counted:
        cursors["permits"] = connection.execute(query("read_permits"), where)
    if wish.with_others:
        cursors["running"] = connection.execute(query("read_running"), where)
        cursors["held"] = connection.execute(query("read_held"), where)
        cursors["halted"] = connection.execute(query("read_halted"), where)
    return cursors


def _read_look(as_of: str, server: str, cursors: dict[str, Cursor]) -> Look:
    seen = Look(as_of, server)
    if "new" in cursors:
        for row in cursors["new"].fetchall():
            seen.add(ReadyRow(*row), is_next=False)
    for row in cursors["next"].fetchall():
        seen.add(ReadyRow(*row), is_next=True)
    if "permits" in cursors:
        ((seen.permits, seen.tokens),) = cursors["permits"].fetchall()
    if "running" in cursors:
        running = cursors["running"].fetchall()
        seen.running = [(job, key) for job, key, _ in running]
        seen.unstarted = {job for job, _, is_unstarted in running if is_unstarted}
        seen.held = [(job, key) for job, key in cursors["held"].fetchall()]
        seen.halted = [row[0] for row in cursors["halted"].fetchall()]
    return seen


def read_single_keys(connection: Connection, rows: Sequence[ReadyRow]) -> dict[tuple[int, int], JobFacts]:
    """Of rows without a member bitmap, those of one key, task and tenant: their facts, by first and last job."""
    if not rows:
        return {}
    parameters = {
        "lows": array_text([row.range * RANGE + row.low for row in rows]),
        "highs": array_text([row.range * RANGE + row.high for row in rows]),
    }
    found = connection.execute(query("read_single_keys"), parameters).fetchall()
    return {(low, high - 1): JobFacts(low, key, task, tenant) for low, high, key, task, tenant in found}


def read_waiting(connection: Connection, rows: Sequence[RangeMembers], *, with_args: bool, with_tenant: bool) -> Stored:
    """The jobs of these rows, by id: as a worker starts them (id, args, key, attributes, task), and the tenant.

    Arguments that are long are left out, to be read when the job starts.
    """
    return read_facts(connection, "read_waiting_jobs", rows, with_args=with_args, with_tenant=with_tenant)


def note_idle(connection: Connection, worker: int, idle: Sequence[tuple[Ownership, str]], server: str) -> None:
    """Say that nothing of these partitions could start, each as of a snapshot of this server."""
    connection.execute(
        query("note_idle"),
        {
            "worker": worker,
            "partitions": array_text([ownership.partition_id for ownership, _ in idle]),
            "owner_epochs": array_text([ownership.owner_epoch for ownership, _ in idle]),
            "as_of": [as_of for _, as_of in idle],
            "server": server,
        },
    )


def has_work_of_others(connection: Connection, worker: int) -> bool:
    """Whether partitions that this worker does not own have jobs that could start."""
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


def read_partitions(
    connection: Connection, queues: Iterable[int], known: int = -1
) -> tuple[int, list[PlacedPartition]]:
    """Every partition of these queues, and the version of the catalogue that is as of; none, where it is the one that
    is known.
    """
    rows = connection.execute(query("read_partitions"), {"queues": array_text(queues), "known": known}).fetchall()
    return rows[0][0], [PlacedPartition(*each) for _, *each in rows if each[0] is not None]


def still_ready(connection: Connection, partition: int, jobs: Iterable[int]) -> set[int]:
    """Which of these jobs are still ready in a partition."""
    rows = connection.execute(query("still_ready"), {"partition": partition, "jobs": array_text(jobs)}).fetchall()
    return {row[0] for row in rows}
