"""Cron entries live on the shard that their jobs go to, and follow them.

Where a map of keys changes an entry may find itself on another shard than its jobs. There it does not fire; it moves:
marked as leaving where it is, taken in at home, dropped. Whoever dies in between leaves a mark, and what to do about it
is decided when all shards have said what they have of that name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from penstock.shards.databases import Databases
from penstock.storage.catalogue import crons
from penstock.storage.catalogue import queues as catalogue
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.queries import query

__all__ = ["move_crons", "write_where_it_is"]

log = logging.getLogger("penstock")


def write_where_it_is(databases: Databases, name: str, home: Database, write: Callable[[Connection], None]) -> None:
    """Write an entry down at home, or where it is until upkeep moves it.

    A new one is not written before every shard has said that it has none of the name: two entries would fire twice.
    """
    if databases.sole is not None:
        databases.sole.run(write)
        return
    found = databases.each(lambda connection: crons.read(connection, name))
    numbers = [number for number, rows in found.given.items() if rows and not rows[0].is_leaving]
    if not numbers:
        found.all()
    at_home = home.shard in numbers or not numbers
    (home if at_home else databases.of(numbers[0])).ask(write)


def move_crons(databases: Databases) -> int:
    """Bring entries home that are on other shards than their jobs; how many moved."""
    found = databases.each(crons.read, timeout=3.0)
    if not any(found.given.values()):
        return 0
    homes = {queue.name: queue for queue in databases.read(catalogue.read_queues)}
    moved = 0
    for number, rows in sorted(found.given.items()):
        for row in rows:
            if row.queue not in homes:
                continue
            home = crons.home_of(homes[row.queue], row.key)
            if row.is_leaving:
                others = [other for given in found for other in given if other.name == row.name and other is not row]
                if any(other.moves > row.moves for other in others):
                    databases.of(number).ask(lambda c: drop_left(c, row), timeout=3.0)  # noqa: B023
                    continue
                if found.missing:
                    continue  # One of them may have it.
            elif home == number:
                continue
            moved += _move(databases, row, number, home)
    return moved


def _move(databases: Databases, row: crons.CronRow, number: int, home: int) -> bool:
    old, new = databases.of(number), databases.of(home)
    if new.breaker.is_down:
        return False
    values = old.ask(lambda connection: mark_leaving(connection, row), timeout=3.0)
    if values is None:
        return False
    new.ask(lambda connection: take(connection, values), timeout=3.0)
    if home != number:
        old.ask(lambda connection: drop_left(connection, row), timeout=3.0)
    log.info("cron %r lives on shard %d now, where its jobs go", row.name, home)
    return True


def mark_leaving(connection: Connection, row: crons.CronRow) -> dict[str, Any] | None:
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


def drop_left(connection: Connection, row: crons.CronRow) -> None:
    """Forget an entry that another shard has now."""
    connection.execute(query("drop_cron_that_left"), {"name": row.name, "moves": row.moves})
