"""The cron table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.routing.key_hash import partition_of
from penstock.routing.placement import least_loaded
from penstock.storage.catalogue import QueueEntry, find_queue, open_depths
from penstock.storage.database import Connection
from penstock.storage.enqueue import Span, drive, write_few
from penstock.storage.queries import query

__all__ = ["CronRow", "DueCron", "advance", "database_now", "due", "enqueue", "pause", "read", "remove", "write"]


@dataclass(frozen=True, slots=True)
class DueCron:
    """An entry to fire."""

    name: str
    expression: str
    timezone: str
    queue_id: int
    task: str
    key: bytes | None
    args: bytes
    next_at: datetime


@dataclass(frozen=True, slots=True)
class CronRow:
    """An entry as it is shown."""

    name: str
    expression: str
    timezone: str
    queue: str
    task: str
    key: bytes | None
    args: bytes
    is_paused: bool
    next_at: datetime
    last_at: datetime | None


def due(connection: Connection) -> list[DueCron]:
    """Entries that are due, locked; those that others fire are passed over."""
    return [DueCron(*row) for row in connection.execute(query("due_crons")).fetchall()]


def advance(connection: Connection, name: str, next_at: datetime, last_at: datetime) -> None:
    """Note that an entry has fired."""
    connection.execute(query("advance_cron"), {"name": name, "next_at": next_at, "last_at": last_at})


def write(
    connection: Connection,
    *,
    name: str,
    expression: str,
    timezone: str,
    queue_id: int,
    task: str,
    key: bytes | None,
    args: bytes,
    next_at: datetime,
) -> None:
    """Define an entry; the same definition again changes nothing."""
    connection.execute(
        query("write_cron"),
        {
            "name": name,
            "expression": expression,
            "timezone": timezone,
            "queue_id": queue_id,
            "task": task,
            "key": key,
            "args": args.decode(),
            "next_at": next_at,
        },
    )


def read(connection: Connection, name: str | None = None) -> list[CronRow]:
    """Every entry, or the one of that name."""
    return [CronRow(*row) for row in connection.execute(query("read_crons"), {"name": name}).fetchall()]


def pause(connection: Connection, name: str, is_paused: bool, next_at: datetime) -> bool:
    """Stop or go on firing an entry; whether there is one."""
    values = {"name": name, "is_paused": is_paused, "next_at": next_at}
    return connection.execute(query("pause_cron"), values).fetchone() is not None


def remove(connection: Connection, name: str) -> bool:
    """Delete an entry; whether there was one."""
    return connection.execute(query("remove_cron"), {"name": name}).fetchone() is not None


def enqueue(
    connection: Connection, queue: QueueEntry, entry: DueCron | CronRow, attributes: dict[str, Any], priority: int
) -> int:
    """Write an entry's job; its id."""
    ids = [0]
    while True:
        if entry.key is not None:
            number = partition_of(entry.key, queue.partition_count)
        else:
            number = least_loaded(open_depths(connection, queue.partition_ids[: queue.partition_count]))
        span = Span(queue.id, queue.partition_ids[number], priority, entry.task, args=[entry.args], places=[0])
        span.keys = None if entry.key is None else [entry.key]
        span.attributes = [{"cron": entry.name, **attributes}]
        if queue.is_owned:
            span.epoch, span.task, span.tasks = queue.epoch, "", [entry.task]
        if drive(connection, write_few(span, ids)):
            return ids[0]
        queue = find_queue(connection, queue.name)


def database_now(connection: Connection) -> datetime:
    """The database's time: what every stored instant is compared with."""
    row = connection.execute("select now()").fetchone()
    assert row is not None  # noqa: S101
    now: datetime = row[0]
    return now
