"""Cron entries: written from an app's declarations, read, paused, removed, and run out of turn."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from penstock.errors import NotFound
from penstock.model.cron import Cron
from penstock.model.limits import DEFAULT_PRIORITY, checked_name, key_from_bytes
from penstock.policy.cron import Schedule
from penstock.storage import catalogue, crons
from penstock.storage.database import Connection, Database

__all__ = ["CronDefinition", "pause_cron", "read_crons", "remove_cron", "resume_cron", "run_cron", "write_cron"]


@dataclass(frozen=True, slots=True)
class CronDefinition:
    """An entry as declared, checked."""

    name: str
    expression: str
    timezone: str
    queue: str
    task: str
    args: bytes
    key: bytes | None


def write_cron(database: Database, declared: CronDefinition) -> None:
    """Write an entry down; the same again changes nothing."""
    schedule = Schedule(declared.expression, declared.timezone)

    def write(connection: Connection) -> None:
        queue = catalogue.find_queue(connection, declared.queue)
        crons.write(
            connection,
            name=declared.name,
            expression=declared.expression,
            timezone=declared.timezone,
            queue_id=queue.id,
            task=declared.task,
            key=declared.key,
            args=declared.args,
            next_at=schedule.next_after(crons.database_now(connection)),
        )

    database.run(write)


def read_crons(database: Database) -> list[Cron]:
    """Every entry, by name."""
    return [_shown(row) for row in database.run(crons.read)]


def pause_cron(database: Database, name: str) -> None:
    """Fire an entry no more, until it is resumed."""
    row = _find(database, name)
    database.run(lambda connection: crons.pause(connection, name, True, row.next_at))


def resume_cron(database: Database, name: str) -> None:
    """Fire an entry again, from its next instant on."""
    row = _find(database, name)
    schedule = Schedule(row.expression, row.timezone)

    def resume(connection: Connection) -> None:
        crons.pause(connection, name, False, schedule.next_after(crons.database_now(connection)))

    database.run(resume)


def remove_cron(database: Database, name: str) -> None:
    """Delete an entry."""
    if not database.run(lambda connection: crons.remove(connection, checked_name("name", name))):
        raise _unknown(name)


def run_cron(database: Database, name: str) -> int:
    """Enqueue an entry's job now, out of turn; its id."""
    row = _find(database, name)
    # Not repeated after a lost answer: a person asked for it and sees that it failed.
    with database.connection() as connection:
        queue = catalogue.find_queue(connection, row.queue)
        return crons.enqueue(connection, queue, row, {}, DEFAULT_PRIORITY)


def _find(database: Database, name: str) -> crons.CronRow:
    found = database.run(lambda connection: crons.read(connection, checked_name("name", name)))
    if not found:
        raise _unknown(name)
    return found[0]


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no cron {name!r}: see app.crons() or `penstock crons`")


def _shown(row: crons.CronRow) -> Cron:
    return Cron(
        name=row.name,
        expression=row.expression,
        timezone=row.timezone,
        queue=row.queue,
        task=row.task,
        args=msgspec.json.decode(row.args),
        key=None if row.key is None else key_from_bytes(row.key),
        is_paused=row.is_paused,
        next_at=row.next_at,
        last_at=row.last_at,
    )
