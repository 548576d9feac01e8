"""Remote workers, as servers act for them: what the last poll of each did is kept where it was done.

A turn for one names the poll it is a part of, and the request that makes it. It fails where another request acts for
the worker by now (`is_superseded`), or where the worker is gone (`is_gone`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.storage.connection.arrays import array_text, members_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.work.leases import Lease, members_of

__all__ = [
    "GivenLease",
    "Greeting",
    "HeldLease",
    "NamedJob",
    "Opening",
    "OverdueLease",
    "PollRecord",
    "RemoteTurn",
    "asks_of_open",
    "crew_tasks",
    "end_poll",
    "enroll",
    "forget_remote_workers",
    "greet",
    "hand_back_poll",
    "is_gone",
    "is_superseded",
    "leave_remote",
    "news_of_open",
    "note_delivered",
    "overdue",
    "queues_with_ready",
    "read_poll",
    "record_of",
    "remote_workers_left_out",
    "renew_open",
    "sleep_on",
    "take_away",
    "take_over_poll",
]

GONE, SUPERSEDED = "PS010", "PS011"


def is_gone(error: BaseException) -> bool:
    """Whether a turn failed because its worker was declared dead, or has left."""
    return getattr(error, "sqlstate", None) == GONE


def is_superseded(error: BaseException) -> bool:
    """Whether a turn failed because something is another than was seen: the request, the poll, or what is held."""
    return getattr(error, "sqlstate", None) == SUPERSEDED


class NamedJob(NamedTuple):
    """A job as a remote worker names it at its end: lease and token are the fence."""

    job: int
    lease: int
    token: int

    @property
    def pair(self) -> tuple[int, int]:
        """Lease and position."""
        return self.lease, self.job % 1024


class HeldLease(NamedTuple):
    """A lease that a remote worker holds, as it was seen at the beginning of a call."""

    id: int
    token: int
    partition_id: int
    queue_id: int
    range: int
    low: int
    high: int
    members: str | None
    attempt: int
    rescues: int
    task: str
    # Seconds since it was given.
    age: float

    @property
    def positions(self) -> Sequence[int]:
        return members_of(self.low, self.high, self.members)


class Greeting(NamedTuple):
    """How a remote worker stands on one database at the beginning of a call."""

    worker: int
    name: str
    lease_seconds: float
    registration: str
    is_asked_to_stop: bool
    number: int
    request: int
    is_done: bool
    # By shard, since which poll answers were given without it.
    without: Mapping[int, int]
    held: Mapping[int, HeldLease]
    # Those of its jobs that somebody wants stopped, and those that were taken away and that it may not have heard of.
    asked: Sequence[int]
    taken_away: Sequence[int]

    @property
    def held_jobs(self) -> int:
        return sum(len(lease.positions) for lease in self.held.values())

    def find_held(self, jobs: Iterable[NamedJob]) -> dict[NamedJob, HeldLease]:
        """Those of these jobs that are held, with the leases they are held under."""
        found: dict[NamedJob, HeldLease] = {}
        members: dict[int, frozenset[int]] = {}
        for named in jobs:
            lease = self.held.get(named.lease)
            if lease is None or lease.token != named.token or lease.range != named.job // 1024:
                continue
            if lease.id not in members:
                members[lease.id] = frozenset(lease.positions)
            if named.job % 1024 in members[lease.id]:
                found[named] = lease
        return found


class GivenLease(NamedTuple):
    """A lease as a poll was given it, and as the same poll is answered again."""

    id: int
    token: int
    partition_id: int
    queue_id: int
    range: int
    low: int
    high: int
    members: str | None
    attempt: int
    task: str

    @property
    def positions(self) -> Sequence[int]:
        return members_of(self.low, self.high, self.members)

    def as_lease(self) -> Lease:
        """What reading its jobs takes."""
        return Lease(
            *(self.id, self.partition_id, 0, 0, self.range, self.low, self.high, self.members, self.attempt, 0),
            is_ahead=True,
            task=self.task,
            waited_seconds=0.0,
            token=self.token,
        )


class PollRecord(NamedTuple):
    """What came of a poll on one database, as it is kept there."""

    is_done: bool
    # How many ends it named, the jobs of those that were not held, jobs that were taken away, and what it was given.
    ends: int
    lost: Sequence[NamedJob]
    taken_away: Sequence[NamedJob]
    claimed: Sequence[GivenLease]


class Opening(NamedTuple):
    """The beginning of a poll: what was seen before, its ends, how many of them were not held, and how many jobs ended
    by the others, and failed.
    """

    seen_number: int
    seen_request: int
    ends: Sequence[NamedJob]
    lost: int
    ended: int
    failed: int
    without: Mapping[int, int]
    # The poll before was answered without this database: what it was given here nobody heard of.
    is_untold: bool

    def parameters(self) -> dict[str, Any]:
        positions: dict[tuple[int, int, int], list[int]] = {}
        for named in self.ends:
            positions.setdefault((named.lease, named.token, named.job // 1024), []).append(named.job % 1024)
        return {
            "leases": array_text([lease for lease, _, _ in positions]),
            "tokens": array_text([token for _, token, _ in positions]),
            "ranges": array_text([range_ for _, _, range_ in positions]),
            "members": array_text([members_text(each) for each in positions.values()]),
            "seen_number": self.seen_number,
            "seen_request": self.seen_request,
            "lost": self.lost,
            "ended": self.ended,
            "failed": self.failed,
            "without": json.dumps(self.without),
            "is_untold": self.is_untold,
        }


@dataclass(frozen=True, slots=True)
class RemoteTurn:
    """Which poll a turn is a part of, and the request that makes it; what it claims is noted for that poll.

    `opening`: it begins the poll. `is_last`: nothing more is tried for it, whether something is claimed or not.
    `wake`: queues on which others may have something to do by what it settles.
    """

    remote: int
    number: int
    request: int
    is_last: bool = False
    opening: Opening | None = None
    wake: Sequence[int] = field(default=())

    @property
    def fence(self) -> dict[str, Any]:
        return {"remote": self.remote, "number": self.number, "request": self.request}

    def begin(self, connection: Connection) -> None:
        """Send what comes first in the transaction."""
        if self.opening is not None:
            connection.execute(query("open_poll"), {**self.fence, **self.opening.parameters()})

    def end(self, connection: Connection, *, takes: bool) -> None:
        """Send what comes last; `takes`: whether something is claimed, which ends the poll as it is to be ended."""
        if self.is_last and not takes:
            without = {} if self.opening is None else self.opening.without
            connection.execute(query("end_poll"), {**self.fence, "without": json.dumps(without)})
        if self.wake:
            connection.execute(query("wake_queues"), {"queues": array_text(self.wake)})


def enroll(connection: Connection, remote: int, worker: int, registration: str, shortest_timeout: float | None) -> bool:
    """Let a row of `worker` be a remote worker's; False where it has another that lives."""
    row = connection.execute(
        query("enroll_remote_worker"),
        {
            "remote": remote,
            "worker": worker,
            "registration": registration,
            "shortest_timeout": shortest_timeout,
        },
    ).fetchone()
    return row is not None


def greet(connection: Connection, remote: int, *, is_renewal: bool = False) -> Greeting | None:
    """Renew a remote worker and see how it stands; None: it is not here, or was declared dead."""
    row = connection.execute(query("greet_remote_worker"), {"remote": remote, "is_renewal": is_renewal}).fetchone()
    if row is None:
        return None
    *facts, without, held, asked, taken = row
    since = {int(shard): number for shard, number in json.loads(without).items()}
    leases = {each[0]: HeldLease(*each) for each in json.loads(held)}
    return Greeting._make([*facts, since, leases, asked, taken])


def note_delivered(connection: Connection, remote: int) -> None:
    """The worker has the jobs it was given: a crash is charged to them from here on."""
    connection.execute(query("note_delivered"), {"remote": remote})


def read_poll(connection: Connection, remote: int) -> PollRecord:
    """What came of its last poll here."""
    row = connection.execute(query("read_poll"), {"remote": remote}).fetchone()
    if row is None:
        return PollRecord(True, 0, [], [], [])
    return record_of(row)


def record_of(row: Sequence[Any]) -> PollRecord:
    """The record as it is stored."""
    is_done, ends, lost, taken_away, claimed = row
    return PollRecord(
        is_done,
        ends,
        [NamedJob(*each) for each in json.loads(lost)],
        [NamedJob(*each) for each in json.loads(taken_away)],
        [GivenLease(*each) for each in json.loads(claimed)],
    )


def take_over_poll(
    connection: Connection, remote: int, number: int | None, request: int, instead: Sequence[int] | None = None
) -> bool:
    """Act for a worker from here on, instead of whoever does, or of these requests only; whether it was done."""
    given = {"remote": remote, "number": number, "request": request}
    given["instead"] = None if instead is None else array_text(instead)  # type: ignore[assignment]
    row = connection.execute(query("take_over_poll"), given).fetchone()
    return bool(row and row[0])


def end_poll(connection: Connection, remote: int, number: int, request: int, without: Mapping[int, int]) -> None:
    """Let a poll end with what it has."""
    given = {"remote": remote, "number": number, "request": request, "without": json.dumps(without)}
    connection.execute(query("end_poll"), given)


def hand_back_poll(connection: Connection, remote: int, number: int, request: int) -> None:
    """Hand back what a poll was given that was never answered."""
    connection.execute(query("hand_back_poll"), {"remote": remote, "number": number, "request": request})


def leave_remote(connection: Connection, remote: int) -> None:
    """Let a remote worker leave, and hand back what it holds."""
    connection.execute(query("leave_remote"), {"remote": remote})


def renew_open(connection: Connection, workers: Sequence[int]) -> set[int]:
    """Renew workers whose polls are open; those that live."""
    rows = connection.execute(query("renew_open"), {"workers": array_text(workers)}).fetchall()
    return {row[0] for row in rows}


def news_of_open(connection: Connection, workers: Sequence[int]) -> dict[int, tuple[bool, bool]]:
    """Of these workers, by number: whether it is to stop, and whether something was taken away from it."""
    rows = connection.execute(query("news_of_open"), {"workers": array_text(workers)}).fetchall()
    return {worker: (stops, taken) for worker, stops, taken in rows}


def asks_of_open(connection: Connection, workers: Sequence[int]) -> dict[int, set[int]]:
    """By number, the jobs of these workers that somebody wants stopped."""
    asked: dict[int, set[int]] = {}
    for worker, job in connection.execute(query("asks_of_open"), {"workers": array_text(workers)}).fetchall():
        asked.setdefault(worker, set()).add(job)
    return asked


class OverdueLease(NamedTuple):
    """A lease that is older than some task of its worker may run."""

    remote: int
    worker: int
    name: str
    registration: str
    id: int
    token: int
    partition_id: int
    queue_id: int
    range: int
    low: int
    high: int
    members: str | None
    attempt: int
    task: str
    age: float

    @property
    def positions(self) -> Sequence[int]:
        return members_of(self.low, self.high, self.members)


def overdue(connection: Connection, grace_seconds: float) -> list[OverdueLease]:
    """Leases whose jobs may have run past their timeout, and so long on top."""
    rows = connection.execute(query("overdue_remotely"), {"grace": grace_seconds}).fetchall()
    return [OverdueLease(*row) for row in rows]


def take_away(connection: Connection, remote: int, worker: int, name: str, ends: str) -> int:
    """Take jobs away from a remote worker, with ends as JSON; how many it held."""
    given = {"remote": remote, "worker": worker, "name": name, "ends": ends}
    row = connection.execute(query("take_away"), given).fetchone()
    return int(row[0]) if row else 0


def queues_with_ready(connection: Connection, queues: Sequence[int]) -> list[int]:
    """Those of these queues of which anything is ready."""
    return [row[0] for row in connection.execute(query("queues_with_ready"), {"queues": array_text(queues)}).fetchall()]


def sleep_on(connection: Connection, worker: int, queues: Sequence[int]) -> None:
    """Ask to be woken by producers of these queues, and of no others."""
    connection.execute(query("sleep_on"), {"worker": worker, "queues": array_text(queues)})


def crew_tasks(connection: Connection, queues: Sequence[int]) -> list[tuple[int, str, str]]:
    """Of queues with an owner: each task that somebody knows who chooses from them, and one of those."""
    rows = connection.execute(query("crew_tasks"), {"queues": array_text(queues)}).fetchall()
    return [(queue, task, who) for queue, task, who in rows]


def remote_workers_left_out(connection: Connection, queue: int) -> list[tuple[str, str, str]]:
    """Remote workers that get nothing of a queue with an owner, each with a task that it lacks and who knows it."""
    rows = connection.execute(query("remote_workers_left_out"), {"queue": queue}).fetchall()
    return [(name, task, who) for name, task, who in rows]


def forget_remote_workers(connection: Connection) -> int:
    """Forget those that were declared dead."""
    row = connection.execute(query("forget_remote_workers")).fetchone()
    return int(row[0]) if row else 0
