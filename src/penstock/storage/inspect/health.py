"""What the database can tell about itself and about a job that waits: the facts behind `explain` and `doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from penstock.deadline import current_deadline
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import ConnectionLost, first_line
from penstock.storage.connection.listen import listen_to, notify_channel
from penstock.storage.connection.queries import query
from penstock.storage.connection.sessions import ask_nothing
from penstock.storage.inspect.system_figures import MOST_PARKED

__all__ = [
    "ArchiveFacts",
    "DividedTasks",
    "HolderFacts",
    "ParentFacts",
    "ServerFacts",
    "SetAside",
    "StuckJob",
    "TablesAhead",
    "Trouble",
    "WaitingFacts",
    "answers",
    "archive_facts",
    "backlogs",
    "dead_tuples",
    "divided_tasks",
    "halted_keys",
    "holder_of_job",
    "is_asked_to_stop",
    "jobs_nobody_knows",
    "jobs_set_aside",
    "lack_of_room",
    "nearly_full",
    "notification_seconds",
    "oldest_transaction",
    "on_its_way",
    "parents_waited_for",
    "server_facts",
    "stuck_jobs",
    "tables_ahead",
    "tasks_without_timeout",
    "troubles",
    "why_set_aside",
    "why_waiting",
    "workers_alive",
]


@dataclass(frozen=True, slots=True)
class ParentFacts:
    """Of a child: the parents that have not ended, and what failed and may come back: dead letters among its ancestors
    here, and jobs of other shards. At most a hundred each.
    """

    waited_for: Sequence[int] = ()
    dead: Sequence[int] = ()
    elsewhere: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class WaitingFacts:
    """What holds a ready job back. `is_behind_more`: more rows stand before it than were counted.

    `running_jobs` are some of the jobs that run in its partition, where that has a limit; `rate_opens_in` the seconds
    until its rate lets the next one start; `earlier_shard` where its partition was before and is not worked off yet;
    `is_carried_on`: its partition left before there was a limit, and nothing starts where it was; `permits`: how many
    of the queue's `total_limit` may run in its partition; `tokens`: how many may start there by its `total_rate`.
    `batch`: how many jobs its handler gets together, where it may still be one of those; `batch_jobs`: how many of them
    wait, None where that depends on its key; `batch_seconds`: for how long they may.
    """

    is_paused: bool
    is_parked: bool
    priority: int
    workers: int
    workers_that_know: int
    jobs_before: int
    is_behind_more: bool
    limit: int | None
    running: int | None
    running_jobs: list[int]
    rate: float | None
    rate_opens_in: float | None
    earlier_shard: int | None
    is_carried_on: bool
    queue_id: int
    total_limit: int | None
    permits: int
    total_rate: float | None
    tokens: int | None
    batch: int | None
    batch_jobs: int | None
    batch_seconds: float | None


@dataclass(frozen=True, slots=True)
class HolderFacts:
    """The worker of a job that runs. `silent_seconds`: for how long it has not renewed a lease that has run out."""

    is_gone: bool
    silent_seconds: float | None
    workers_alive: int
    # The other jobs of its batch; of a run, the first that has not ended, where it is not that.
    batch: list[int]
    behind: int | None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server's version, the settings durability rests on, and its time."""

    version_number: int
    version: str
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    now: datetime
    takes_writes: bool
    jit: bool


@dataclass(frozen=True, slots=True)
class DividedTasks:
    """A worker of a queue with an owner lacks a task that another one has, and that one lacks one of its own."""

    queue: str
    worker: str
    task: str
    other: str


@dataclass(frozen=True, slots=True)
class TablesAhead:
    """Range numbers that still fit, tables of jobs attached, slices not yet opened."""

    ranges: int
    attached: int
    slices: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """A duty of upkeep that has failed in the same way for so many seconds."""

    duty: str
    error: str
    seconds: float


@dataclass(frozen=True, slots=True)
class StuckJob:
    """A job that has run for far too long, and whether its task has a timeout."""

    queue: str
    task: str
    job_id: int
    seconds: float
    has_timeout: bool


@dataclass(frozen=True, slots=True)
class SetAside:
    """Jobs of a queue that were set aside: how many, the first of them, why that one was, since when one is ready."""

    queue: str
    count: int
    jobs: list[int]
    reason: str
    since: datetime


@dataclass(frozen=True, slots=True)
class ArchiveFacts:
    """The last archive: to which lake, when it began, whether it ended, whether one runs; slices on their way."""

    location: str | None
    began: str | None
    has_ended: bool
    is_running: bool
    taken: list[int]


def why_waiting(connection: Connection, job_id: int, task: str) -> WaitingFacts | None:
    """What holds a ready job of this task back, or None where it is not ready any more."""
    row = connection.execute(query("why_waiting"), {"id": job_id, "task": task}).fetchone()
    return None if row is None else WaitingFacts(*row)


def on_its_way(connection: Connection, job_id: int) -> tuple[int, str] | None:
    """The shard that a job is being carried to, and what it will be there; None where it is not on its way."""
    row = connection.execute(query("on_its_way"), {"id": job_id}).fetchone()
    return None if row is None else (row[0], row[1])


def troubles(connection: Connection) -> list[Trouble]:
    """Duties of upkeep that fail again and again."""
    return [Trouble(*row) for row in connection.execute(query("troubles")).fetchall()]


def why_set_aside(connection: Connection, job_id: int) -> tuple[str, datetime, str] | None:
    """Why a job was set aside, since when it waits and in which queue; None where it was not."""
    row = connection.execute(query("why_set_aside"), {"id": job_id}).fetchone()
    return None if row is None else (row[0], row[1], row[2])


def jobs_set_aside(connection: Connection) -> list[SetAside]:
    """What was set aside, by queue."""
    rows = connection.execute(query("jobs_set_aside"), {"most_parked": MOST_PARKED}).fetchall()
    return [SetAside(*row) for row in rows]


def parents_waited_for(connection: Connection, job_id: int) -> ParentFacts | None:
    """What a child waits for, or is cancelled for until that comes back; None where it does neither."""
    row = connection.execute(query("parents_waited_for"), {"id": job_id}).fetchone()
    return None if row is None else ParentFacts(*row)


def is_asked_to_stop(connection: Connection, job_id: int) -> bool:
    """Whether somebody wants a running job stopped."""
    return bool(_row(connection, "is_asked_to_stop", {"id": job_id})[0])


def holder_of_job(connection: Connection, job_id: int, key: bytes | None = None) -> HolderFacts | None:
    """How it is with the worker that has a job under its lease; None where none has."""
    row = connection.execute(query("holder_of_job"), {"id": job_id, "key": key}).fetchone()
    return None if row is None else HolderFacts(*row)


def server_facts(connection: Connection) -> ServerFacts:
    """What the server is and how it is set."""
    return ServerFacts(*_row(connection, "server_settings"))


def lack_of_room(connection: Connection) -> str | None:
    """What the server says where it cannot write a megabyte more to its disk; None where it can."""
    try:
        with connection.transaction():
            connection.execute(query("spill_at_once"))
            connection.execute(query("spill_to_disk"))
    except psycopg.errors.DiskFull as error:
        return first_line(error)
    except psycopg.errors.ConfigurationLimitExceeded:
        return None  # Its temp_file_limit is lower: nothing is known to be wrong.
    return None


def oldest_transaction(connection: Connection) -> tuple[float, int | None, int]:
    """How long the longest open transaction has lasted, in seconds, its process, and how many sessions are hidden."""
    seconds, pid, hidden = _row(connection, "oldest_transaction")
    return seconds, pid, hidden


def dead_tuples(connection: Connection) -> dict[str, tuple[int, int]]:
    """Dead and live rows of the tables every job passes through."""
    return {name: (dead, live) for name, dead, live in connection.execute(query("dead_tuples")).fetchall()}


def tables_ahead(connection: Connection) -> TablesAhead:
    """How far the tables made ahead reach."""
    return TablesAhead(*_row(connection, "tables_ahead"))


def archive_facts(connection: Connection) -> ArchiveFacts:
    """How the last archive went."""
    return ArchiveFacts(*_row(connection, "archive_facts"))


def workers_alive(connection: Connection) -> tuple[int, int]:
    """Workers heard of within their lease, and all that are entered."""
    alive, entered = _row(connection, "workers_alive")
    return alive, entered


def jobs_nobody_knows(connection: Connection) -> list[tuple[str, str]]:
    """(queue, task) pairs that wait and that no live worker has a handler for."""
    return [(queue, task) for queue, task in connection.execute(query("jobs_nobody_knows")).fetchall()]


def tasks_without_timeout(connection: Connection) -> list[tuple[str, str]]:
    """Queue and name of tasks of live workers that have no timeout."""
    return [(queue, task) for queue, task in connection.execute(query("tasks_without_timeout")).fetchall()]


def backlogs(connection: Connection, seconds: float) -> list[tuple[str, float, int]]:
    """Partitions whose oldest ready job has waited for longer than that: their names, how long, how many wait."""
    return connection.execute(query("backlogs"), {"seconds": seconds}).fetchall()


def nearly_full(connection: Connection, share: float) -> list[tuple[str, int, int]]:
    """Partitions with such a part of what may wait there: their names, how many wait, how many may."""
    return connection.execute(query("nearly_full"), {"share": share}).fetchall()


def halted_keys(connection: Connection) -> list[tuple[str, int, float]]:
    """Queues with keys that wait for a person: their names, how many keys, seconds since the first."""
    return connection.execute(query("halted_keys")).fetchall()


def stuck_jobs(connection: Connection, limit: int = 1_000) -> list[StuckJob]:
    """Jobs that have run for far too long, the longest first."""
    return [StuckJob(*row) for row in connection.execute(query("stuck_jobs"), {"limit": limit}).fetchall()]


def divided_tasks(connection: Connection, worker: int | None = None) -> list[DividedTasks]:
    """Where workers of queues with an owner divide the tasks among them, so that keys wait; of one worker or of all."""
    return [DividedTasks(*row) for row in connection.execute(query("divided_tasks"), {"worker": worker}).fetchall()]


def notification_seconds(database: Database, timeout: float = 5.0) -> float | None:
    """How long a notification takes to come back on a connection of its own, or None where it does not."""
    clock = database.clock
    with database.connect() as connection:
        channel = f"penstock_doctor_{clock.random_token()}"
        listen_to(connection, channel)
        started = clock.monotonic()
        notify_channel(connection, channel)
        call = current_deadline()
        patience = timeout if call is None else min(timeout, max(call.left(), 0.0))
        for _ in connection.notifies(timeout=patience, stop_after=1):
            return clock.monotonic() - started
    return None


def answers(database: Database) -> bool:
    """Whether the database can be reached at all."""
    try:
        with database.connect() as connection:
            ask_nothing(connection)
    except ConnectionLost:
        return False
    return True


def _row(connection: Connection, name: str, parameters: dict[str, Any] | None = None) -> Sequence[Any]:
    row = connection.execute(query(name), parameters).fetchone()
    assert row is not None  # noqa: S101
    return row
