"""The cron table. An entry lives on one shard, the one its jobs go to, and fires there only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

from penstock.routing.placement import least_loaded
from penstock.routing.router import route
from penstock.storage.catalogue.queues import QueueEntry, read_depths
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.enqueue.job_group import Destination, JobGroup
from penstock.storage.enqueue.steps import drive
from penstock.storage.enqueue.write import write_few, write_groups

__all__ = [
    "CronEntry",
    "CronRow",
    "Fired",
    "Firing",
    "advance",
    "database_now",
    "due",
    "enqueue",
    "home_of",
    "lock_key_map",
    "note_job",
    "pause",
    "read",
    "remove",
    "write",
]


@dataclass(frozen=True, slots=True)
class CronEntry:
    """An entry as it is defined, and when it fires next."""

    name: str
    expression: str
    timezone: str
    queue_id: int
    task: str
    key: bytes | None
    args: bytes
    next_at: datetime


class Fired(NamedTuple):
    """What came of an entry that was due: when it is due next, the last instant it fired for, and the job of that."""

    name: str
    next_at: datetime
    last_at: datetime
    last_job: int | None


class Firing(NamedTuple):
    """A job to write for an entry, and what else is to be known of it."""

    queue: QueueEntry
    entry: CronEntry | CronRow
    attributes: dict[str, Any]


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
    last_job: int | None
    is_leaving: bool
    moves: int


def home_of(queue: QueueEntry, key: bytes | None) -> int:
    """The shard an entry lives on: that of the partition its jobs go to, without a key that of partition 0."""
    shard = route(queue.key_map, key).shard
    return queue.partition_shards[0] if shard is None else shard


def due(connection: Connection, after: CronEntry | None = None) -> list[CronEntry]:
    """Some entries that are due, locked, those after this one; what others fire is passed over."""
    last = {"next_at": after and after.next_at, "name": after and after.name}
    return [CronEntry(*row) for row in connection.execute(query("due_crons"), last).fetchall()]


def advance(connection: Connection, fired: Sequence[Fired]) -> None:
    """Note that entries have fired."""
    columns = ("names", "next_at", "last_at", "last_jobs")
    connection.execute(query("advance_crons"), dict(zip(columns, map(list, zip(*fired, strict=True)), strict=True)))


def note_job(connection: Connection, name: str, job_id: int) -> None:
    """Note the job that an entry has enqueued out of turn."""
    connection.execute(query("note_cron_job"), {"name": name, "job_id": job_id})


def write(connection: Connection, entry: CronEntry) -> None:
    """Define an entry; the same definition again changes nothing."""
    connection.execute(query("write_cron"), {**asdict(entry), "args": entry.args.decode()})


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


def lock_key_map(connection: Connection, queue: QueueEntry) -> bool:
    """Lock the key map by which an entry is at home until the transaction ends; False where the queue has another."""
    row = connection.execute(query("lock_cron_map"), {"queue_id": queue.id, "epoch": queue.epoch}).fetchone()
    return bool(row and row[0])


def enqueue(connection: Connection, firings: Sequence[Firing], priority: int, shard: int) -> list[int] | None:
    """Write the jobs of entries on their home; their ids. None where a queue has another map by now: none is written.

    The caller has opened a transaction, unless it is one job.
    """
    alike: dict[Destination, list[int]] = {}
    opened: dict[int, int] = {}
    for index, (queue, entry, _) in enumerate(firings):
        partition = _partition(connection, queue, entry.key, shard, opened)
        if queue.is_owned:
            destination = Destination(queue.id, partition, priority, "", epoch=queue.epoch)
        else:
            destination = Destination(queue.id, partition, priority, entry.task)
        alike.setdefault(destination, []).append(index)
    groups = [_group(destination, indexes, firings) for destination, indexes in alike.items()]
    ids = [0] * len(firings)
    steps = write_few(groups[0], ids) if len(firings) == 1 else write_groups(groups, ids)
    return ids if drive(connection, steps) else None


def _group(destination: Destination, indexes: list[int], all_firings: Sequence[Firing]) -> JobGroup:
    firings = [all_firings[index] for index in indexes]
    return JobGroup(
        destination,
        indexes,
        args=[firing.entry.args for firing in firings],
        keys=[firing.entry.key for firing in firings],
        attributes=[{"cron": firing.entry.name, **firing.attributes} for firing in firings],
        tasks=[firing.entry.task for firing in firings] if destination.is_owned else None,
    )


def _partition(connection: Connection, queue: QueueEntry, key: bytes | None, shard: int, opened: dict[int, int]) -> int:
    """Where a job goes; `opened` is what the partitions hold that were looked at, with what was placed since."""
    number = route(queue.key_map, key).partition
    if number is not None:
        return queue.partition_ids[number]
    here = [n for n in range(queue.partition_count) if queue.partition_shards[n] == shard]
    ids = [queue.partition_ids[n] for n in here]
    if ids[0] not in opened:
        opened.update(zip(ids, (depth.opened for depth in read_depths(connection, tuple(ids))), strict=True))
    partition = ids[least_loaded([opened[each] for each in ids])]
    opened[partition] += 1
    return partition


def database_now(connection: Connection) -> datetime:
    """The database's time: what every stored instant is compared with."""
    row = connection.execute(query("database_now")).fetchone()
    assert row is not None  # noqa: S101
    now: datetime = row[0]
    return now
