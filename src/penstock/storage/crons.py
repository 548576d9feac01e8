"""The cron table. An entry lives on one shard, the one its jobs go to, and fires there only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.routing.key_hash import partition_of
from penstock.routing.placement import least_loaded
from penstock.storage.catalogue import QueueEntry, read_depths
from penstock.storage.database import Connection
from penstock.storage.enqueue import Span, drive, write_few
from penstock.storage.queries import query

__all__ = ["CronRow", "DueCron", "advance", "database_now", "drop_left", "due", "enqueue", "hold_map", "home_of"]
__all__ += ["mark_leaving", "pause", "read", "remove", "take", "write"]


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
    is_leaving: bool
    moves: int


def home_of(queue: QueueEntry, key: bytes | None) -> int:
    """The shard an entry lives on: that of the partition its jobs go to, without a key that of partition 0."""
    return queue.partition_shards[0 if key is None else partition_of(key, queue.partition_count)]


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


def hold_map(connection: Connection, queue: QueueEntry) -> bool:
    """Hold the map by which an entry is at home until the transaction ends; False where the queue has another."""
    row = connection.execute(query("hold_cron_map"), {"queue_id": queue.id, "epoch": queue.epoch}).fetchone()
    return bool(row and row[0])


def enqueue(
    connection: Connection,
    queue: QueueEntry,
    entry: DueCron | CronRow,
    attributes: dict[str, Any],
    priority: int,
    shard: int,
) -> int | None:
    """Write an entry's job on its home; its id. None where the queue has another map by now."""
    if entry.key is not None:
        number = partition_of(entry.key, queue.partition_count)
    else:
        here = [n for n in range(queue.partition_count) if queue.partition_shards[n] == shard]
        depths = read_depths(connection, tuple(queue.partition_ids[n] for n in here))
        number = here[least_loaded([depth.opened for depth in depths])]
    span = Span(queue.id, queue.partition_ids[number], priority, entry.task, args=[entry.args], places=[0])
    span.keys = None if entry.key is None else [entry.key]
    span.attributes = [{"cron": entry.name, **attributes}]
    if queue.is_owned:
        span.epoch, span.task, span.tasks = queue.epoch, "", [entry.task]
    ids = [0]
    return ids[0] if drive(connection, write_few(span, ids)) else None


def mark_leaving(connection: Connection, row: CronRow) -> dict[str, Any] | None:
    """Fire an entry here no more; what its new home is to have. None where it has gone, or come back."""
    cursor = connection.execute(query("mark_cron_leaving"), {"name": row.name, "moves": row.moves})
    found = cursor.fetchone()
    if found is None or cursor.description is None:
        return None
    values = dict(zip((column.name for column in cursor.description), found, strict=True))
    return {"name": row.name, **values, "args": values["args"].decode(), "moves": row.moves + 1}


def take(connection: Connection, values: dict[str, Any]) -> None:
    """Have an entry that another shard gives away."""
    connection.execute(query("take_cron"), values)


def drop_left(connection: Connection, row: CronRow) -> None:
    """Forget an entry that another shard has now."""
    connection.execute(query("drop_cron_that_left"), {"name": row.name, "moves": row.moves})


def database_now(connection: Connection) -> datetime:
    """The database's time: what every stored instant is compared with."""
    row = connection.execute("select now()").fetchone()
    assert row is not None  # noqa: S101
    now: datetime = row[0]
    return now
