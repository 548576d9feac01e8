"""Cron: entries that are due become jobs, one for each (entry, instant), on the shard the jobs go to.

The entry's row is locked while its job is written and its next instant set, in one transaction: whoever comes second
finds the entry not due. Instants that passed while no worker ran give one job, the latest; the earlier are skipped.

Where a map of keys changes an entry may find itself on another shard than its jobs. There it does not fire; it moves:
marked as leaving where it is, taken in at home, dropped. Whoever dies in between leaves a mark, and what to do about it
is decided when all shards have said what they have of that name.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from penstock.errors import PenstockError
from penstock.model.limits import DEFAULT_PRIORITY
from penstock.policy.cron import Schedule
from penstock.storage import catalogue, crons
from penstock.storage.database import Connection
from penstock.storage.shards import Shards, read_identity

__all__ = ["fire_crons", "move_crons"]

log = logging.getLogger("penstock")


def fire_crons(connection: Connection) -> int:
    """Write the jobs of all entries that are due and at home; how many."""
    with connection.transaction():
        due = crons.due(connection)
        if not due:
            return 0
        here = read_identity(connection).number
        queues = {queue.id: queue for queue in catalogue.read_queues(connection)}
        now = crons.database_now(connection)
        fired = 0
        for entry in due:
            queue = queues[entry.queue_id]
            if crons.home_of(queue, entry.key) != here or not crons.hold_map(connection, queue):
                continue  # It moves, or its queue gets another map: the next round knows.
            try:
                schedule = Schedule(entry.expression, entry.timezone)
                instant = schedule.previous_at_or_before(now)
                upcoming = schedule.next_after(now)
            except PenstockError as error:
                log.error("cron %r cannot be read and is passed over: %s", entry.name, error)
                crons.advance(connection, entry.name, datetime(9998, 1, 1, tzinfo=UTC), entry.next_at)
                continue
            attributes = {"instant": instant.isoformat()}
            if crons.enqueue(connection, queue, entry, attributes, DEFAULT_PRIORITY, here) is not None:
                crons.advance(connection, entry.name, upcoming, instant)
                fired += 1
        return fired


def move_crons(shards: Shards) -> int:
    """Bring entries home that are on other shards than their jobs; how many moved."""
    found = shards.each(crons.read, timeout=3.0)
    if not any(found.given.values()):
        return 0
    homes = {queue.name: queue for queue in shards.read(catalogue.read_queues)}
    moved = 0
    for number, rows in sorted(found.given.items()):
        for row in rows:
            if row.queue not in homes:
                continue
            home = crons.home_of(homes[row.queue], row.key)
            if row.is_leaving:
                others = [other for given in found for other in given if other.name == row.name and other is not row]
                if any(other.moves > row.moves for other in others):
                    shards.of(number).ask(lambda c: crons.drop_left(c, row), timeout=3.0)  # noqa: B023
                    continue
                if found.missing:
                    continue  # One of them may have it.
            elif home == number:
                continue
            moved += _move(shards, row, number, home)
    return moved


def _move(shards: Shards, row: crons.CronRow, number: int, home: int) -> bool:
    old, new = shards.of(number), shards.of(home)
    if new.breaker.is_down:
        return False
    values = old.ask(lambda connection: crons.mark_leaving(connection, row), timeout=3.0)
    if values is None:
        return False
    new.ask(lambda connection: crons.take(connection, values), timeout=3.0)
    if home != number:
        old.ask(lambda connection: crons.drop_left(connection, row), timeout=3.0)
    log.info("cron %r lives on shard %d now, where its jobs go", row.name, home)
    return True
