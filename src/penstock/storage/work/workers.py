"""Who is alive. A worker renews one row; its leases live as long as it does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.clock import system
from penstock.errors import SchemaMismatch
from penstock.model.rules import QueueRules, options_of
from penstock.model.worker import RunningJob, WorkerInfo
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.schema import refuse_newer

__all__ = [
    "Ended",
    "Renewal",
    "add_tasks",
    "ask_to_stop",
    "asked_to_stop",
    "begin",
    "fall_asleep",
    "find_worker",
    "full_name",
    "has_work",
    "limited_queues",
    "next_due",
    "note_session",
    "read_workers",
    "register",
    "remove",
    "renew",
    "report_progress",
    "wake_up",
    "withheld_queues",
]


def register(
    connection: Connection,
    *,
    name: str,
    host: str,
    pid: int,
    version: str,
    concurrency: int,
    lease_seconds: float,
    tasks: Iterable[tuple[int, str]],
    timeouts: Mapping[tuple[int, str], float] | None = None,
    batches: Mapping[tuple[int, str], tuple[int, float]] | None = None,
    instance: str | None = None,
) -> int:
    """Enter a worker with its (queue, task) pairs, their timeouts, infinite where there is none, and of those that are
    given several jobs together how many, and how long these wait for each other; its number.

    `instance`: the same on every shard. The number is drawn at random: a counted one would be given again by a promoted
    standby or a restored backup, and two workers would renew one row. It is short enough to be exact in JSON, wherever
    that is read.
    """
    worker = system.random_token() >> 10
    with connection.transaction():
        connection.execute(
            query("register_worker"),
            {
                "worker": worker,
                "name": full_name(name, worker, instance),
                "instance": instance,
                "host": host,
                "pid": pid,
                "version": version,
                "concurrency": concurrency,
                "lease_seconds": lease_seconds,
            },
        )
        add_tasks(connection, worker, tasks, timeouts, batches)
    return worker


def add_tasks(
    connection: Connection,
    worker: int,
    tasks: Iterable[tuple[int, str]],
    timeouts: Mapping[tuple[int, str], float] | None = None,
    batches: Mapping[tuple[int, str], tuple[int, float]] | None = None,
) -> None:
    """Let a worker take jobs of these tasks too."""
    tasks, timeouts, batches = list(tasks), timeouts or {}, batches or {}
    connection.execute(
        query("register_worker_tasks"),
        {
            "worker": worker,
            "queues": [queue for queue, _ in tasks],
            "tasks": [task for _, task in tasks],
            "timeouts": [timeouts.get(each) for each in tasks],
            "batches": [batches[each][0] if each in batches else None for each in tasks],
            "batch_waits": [batches[each][1] if each in batches else None for each in tasks],
        },
    )


def note_session(connection: Connection, worker: int) -> None:
    """Say which server process a worker claims and settles with: whoever finds it dead ends that too."""
    connection.execute(query("note_session"), {"worker": worker})


def full_name(name: str, worker: int, instance: str | None = None) -> str:
    """What a worker is called everywhere: where it runs, and a few digits that tell it from others that ran there."""
    return f"{name}#{(instance or f'{worker:014x}')[:6]}"


class Ended(NamedTuple):
    """How many jobs ended at a worker, and how many of these raised."""

    jobs: int
    failures: int


class Renewal(NamedTuple):
    """Which server heard that a worker lives, how old a program may be to work there, and whether it may go on."""

    server: str
    oldest_program: int
    # Somebody wants the worker to end gently.
    is_asked_to_stop: bool = False

    @property
    def mismatch(self) -> SchemaMismatch | None:
        """Why this program may not go on."""
        try:
            refuse_newer(self.oldest_program)
        except SchemaMismatch as error:
            return error
        return None


def renew(connection: Connection, worker: int, lately: Ended | None = None) -> Renewal | None:
    """Say that the worker lives, and what ended there in the last minute, where it counts that. None: it was declared
    dead, and all it held is lost.
    """
    ended, failed = (None, None) if lately is None else lately
    given = {"worker": worker, "ended": ended, "failed": failed}
    row = connection.execute(query("renew_worker_if_alive"), given).fetchone()
    return None if row is None else Renewal(*row)


def begin(connection: Connection, worker: int) -> str | None:
    """The first renewal of a worker that was just registered: which server heard it; refused where it is too old."""
    renewal = renew(connection, worker)
    if renewal is None:
        return None
    if renewal.mismatch is not None:
        remove(connection, worker)
        raise renewal.mismatch
    return renewal.server


def remove(connection: Connection, worker: int) -> None:
    """Leave. What the worker still held is rescued like a dead one's."""
    connection.execute(query("remove_worker"), {"worker": worker})


def asked_to_stop(connection: Connection, worker: int) -> set[int]:
    """The jobs of this worker that somebody cancelled."""
    return {row[0] for row in connection.execute(query("asked_to_stop"), {"worker": worker}).fetchall()}


def withheld_queues(connection: Connection, worker: int) -> dict[int, str | None]:
    """The queues of which a worker takes nothing, with what to say of those that are not just paused."""
    known = json.dumps(list(options_of(QueueRules)))
    rows = connection.execute(query("withheld_queues"), {"known": known, "worker": worker}).fetchall()
    return {
        id_: f"queue {name!r}: none of its jobs start here any more; restart this worker where the queue was made anew"
        if is_deleted
        else None
        if is_paused
        else f"queue {name!r} has rules this program does not know: none of its jobs start here"
        for id_, name, is_paused, is_deleted in rows
    }


def limited_queues(connection: Connection) -> set[int]:
    """The numbers of the queues whose partitions have a limit that every claim keeps."""
    return {row[0] for row in connection.execute(query("limited_queues")).fetchall()}


def fall_asleep(connection: Connection, worker: int, queues: Sequence[int]) -> None:
    """Ask to be woken by producers of these queues."""
    connection.execute(query("fall_asleep"), {"worker": worker, "queues": array_text(queues)})


def wake_up(connection: Connection, worker: int) -> None:
    """Be woken no more."""
    connection.execute(query("wake_up"), {"worker": worker})


def next_due(connection: Connection) -> tuple[float | None, float | None]:
    """Seconds until the next scheduled job is due, and the next cron entry; None where there is none."""
    row = connection.execute(query("next_due")).fetchone()
    assert row is not None  # noqa: S101
    return row[0], row[1]


def has_work(connection: Connection, worker: int) -> bool:
    """Whether a job this worker has a handler for could run now."""
    row = connection.execute(query("has_work"), {"worker": worker}).fetchone()
    return bool(row and row[0])


def report_progress(
    connection: Connection, worker: int, reports: Sequence[tuple[int, float | None, str | None]]
) -> None:
    """Store how far jobs of a worker have come: (job, value, note)."""
    connection.execute(
        query("report_progress_if_leased"),
        {
            "worker": worker,
            "ids": [r[0] for r in reports],
            "values": [r[1] for r in reports],
            "notes": [r[2] for r in reports],
        },
    )


def find_worker(connection: Connection, id_: int) -> tuple[str, bool] | None:
    """What a worker is called on all shards, and whether it runs jobs itself; None where it is not here."""
    row = connection.execute(query("find_worker"), {"id": id_}).fetchone()
    return None if row is None else (row[0], row[1])


def ask_to_stop(connection: Connection, instance: str) -> None:
    """Let a worker hear that it is to end gently."""
    connection.execute(query("ask_worker_to_stop"), {"instance": instance})


def read_workers(
    connection: Connection, instance: str | None = None, most_jobs: int = 0
) -> list[tuple[str, WorkerInfo]]:
    """Every worker not declared dead, or one, each with what it is called by on all shards and so many of its jobs."""
    jobs: dict[str, list[RunningJob]] = {}
    if most_jobs:
        asked = {"instance": instance, "most": most_jobs}
        for holder, *facts in connection.execute(query("running_jobs"), asked).fetchall():
            jobs.setdefault(holder, []).append(RunningJob(**dict(zip(_OF_JOB, facts, strict=True))))
    found = []
    for called, *facts, tasks in connection.execute(query("read_workers"), {"instance": instance}).fetchall():
        known: dict[str, list[str]] = json.loads(tasks)
        told = dict(zip(_OF_WORKER, facts, strict=True))
        found.append((called, WorkerInfo(**told, queues=list(known), tasks=known, jobs=jobs.get(called, []))))
    return found


_OF_WORKER = (
    *("id", "name", "host", "pid", "started_at", "renewed_at", "concurrency", "running"),
    *("ended_last_minute", "failed_last_minute"),
    *("version", "is_remote", "is_stopping"),
)
_OF_JOB = ("id", "queue", "task", "attempt", "started_at")
