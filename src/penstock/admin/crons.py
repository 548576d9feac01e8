"""Cron entries: written from an app's declarations, read, paused, removed, and run out of turn.

An entry lives on the shard its jobs go to. Where that changes, upkeep moves it; until then it is found where it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import msgspec

from penstock.admin.answers import ask_everywhere
from penstock.errors import NotFound, PartitionUnavailable, PenstockError
from penstock.model.checks import DEFAULT_PRIORITY, checked_name, key_from_bytes
from penstock.model.cron import Cron
from penstock.model.job_state import State
from penstock.policy.cron import Schedule
from penstock.shards.crons import write_where_it_is
from penstock.shards.databases import Databases
from penstock.storage.catalogue import crons
from penstock.storage.catalogue import queues as catalogue
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import ConnectionLost, is_lost
from penstock.storage.inspect.watching import states_of_jobs

__all__ = [
    "CronDefinition",
    "has_cron",
    "knows_cron",
    "pause_cron",
    "read_crons",
    "remove_cron",
    "resume_cron",
    "run_cron",
    "write_cron",
]

_TRIES = 20
MOST_UPCOMING = 5


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


def has_cron(databases: Databases, declared: CronDefinition) -> bool:
    """Whether an entry is written down as it is declared, on a shard that answers."""
    told = databases.each(lambda connection: crons.read(connection, declared.name), writes=False)
    return any(not row.is_leaving and _as_declared(row) == declared for rows in told for row in rows)


def write_cron(databases: Databases, declared: CronDefinition) -> None:
    """Write an entry down; the same again changes nothing."""
    schedule = Schedule(declared.expression, declared.timezone)
    queue = databases.read(lambda connection: catalogue.find_queue(connection, declared.queue))
    home = databases.of(crons.home_of(queue, declared.key))

    def write(connection: Connection) -> None:
        entry = crons.CronEntry(
            name=declared.name,
            expression=declared.expression,
            timezone=declared.timezone,
            queue_id=queue.id,
            task=declared.task,
            key=declared.key,
            args=declared.args,
            next_at=schedule.next_after(crons.database_now(connection)),
        )
        crons.write(connection, entry)

    write_where_it_is(databases, declared.name, home, write)


def knows_cron(databases: Databases, name: str) -> bool:
    """Whether there is an entry of that name, on any shard that answers."""
    checked_name("name", name)
    return any(ask_everywhere(databases, lambda connection: crons.read(connection, name)))


def read_crons(databases: Databases) -> list[Cron]:
    """Every entry, by name."""
    rows: dict[str, crons.CronRow] = {}
    for each in ask_everywhere(databases, crons.read):
        for row in each:
            known = rows.get(row.name)
            if known is None or (row.moves, not row.is_leaving) > (known.moves, not known.is_leaving):
                rows[row.name] = row
    states = _states(databases, [row.last_job for row in rows.values() if row.last_job is not None])
    return [_to_cron(rows[name], states) for name in sorted(rows)]


def pause_cron(databases: Databases, name: str) -> None:
    """Fire an entry no more, until it is resumed."""
    _pause(databases, name, is_paused=True)


def resume_cron(databases: Databases, name: str) -> None:
    """Fire an entry again, from its next instant on."""
    _pause(databases, name, is_paused=False)


def remove_cron(databases: Databases, name: str) -> None:
    """Delete an entry."""
    checked_name("name", name)
    answers = databases.each(lambda connection: crons.remove(connection, name))
    for error in answers.missing.values():
        # It may be on its way from there, and would come back.
        raise PartitionUnavailable(
            f"cron {name!r} is removed on the shards that answered, and one did not: {error}; then remove it again",
            shard=error.shard,
        )
    if not any(answers):
        raise _unknown(name)


def run_cron(databases: Databases, name: str) -> int:
    """Enqueue an entry's job now, out of turn; its id."""
    row = _find(databases, name)
    for _ in range(_TRIES):
        queue = databases.read(lambda connection: catalogue.find_queue(connection, row.queue))
        home = databases.of(crons.home_of(queue, row.key))
        # Not repeated after a lost answer: a person asked for it and sees that it failed.
        job_id = _enqueue(home, queue, row)
        if job_id is not None:
            return job_id
    raise PartitionUnavailable(f"queue {row.queue!r} gets another map of its keys just now: call again")


def _enqueue(home: Database, queue: catalogue.QueueEntry, row: crons.CronRow) -> int | None:
    try:
        with home.connection() as connection, connection.transaction():
            ids = crons.enqueue(connection, [crons.Firing(queue, row, {})], DEFAULT_PRIORITY, home.shard)
            if ids is None:
                return None
            crons.note_job(connection, row.name, ids[0])
            return ids[0]
    except ConnectionLost as error:
        if not is_lost(error):
            raise
        raise home.unavailable(error) from error


def _pause(databases: Databases, name: str, *, is_paused: bool) -> None:
    row = _find(databases, name)
    schedule = Schedule(row.expression, row.timezone)

    def act(connection: Connection) -> bool:
        return crons.pause(connection, name, is_paused, schedule.next_after(crons.database_now(connection)))

    # Wherever it is: upkeep may be moving it.
    if not any(answers := databases.each(act)):
        answers.all()
        raise _unknown(name)


def _find(databases: Databases, name: str) -> crons.CronRow:
    checked_name("name", name)
    answers = databases.each(lambda connection: crons.read(connection, name))
    found = [row for rows in answers for row in rows]
    if not found:
        answers.all()
        raise _unknown(name)
    return max(found, key=lambda row: (row.moves, not row.is_leaving))


def _as_declared(row: crons.CronRow) -> CronDefinition:
    return CronDefinition(row.name, row.expression, row.timezone, row.queue, row.task, bytes(row.args), row.key)


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no cron {name!r}: see app.crons() or `penstock crons`")


def _states(databases: Databases, ids: Sequence[int]) -> dict[int, State]:
    """The states of jobs, wherever they are by now."""
    if not ids:
        return {}
    answers = ask_everywhere(databases, lambda connection: states_of_jobs(connection, ids))
    return {id_: state for each in answers for id_, state in each.items()}


def _upcoming(row: crons.CronRow) -> list[datetime]:
    """The next instants; none of one that is paused or cannot be read."""
    if row.is_paused:
        return []
    with suppress(PenstockError):
        schedule, found = Schedule(row.expression, row.timezone), [row.next_at]
        while len(found) < MOST_UPCOMING:
            found.append(schedule.next_after(found[-1]))
        return found
    return []


def _to_cron(row: crons.CronRow, states: Mapping[int, State]) -> Cron:
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
        upcoming=_upcoming(row),
        last_job_id=row.last_job,
        last_state=None if row.last_job is None else states.get(row.last_job),
    )
