"""Cron: entries that are due become jobs, one for each (entry, instant).

The entry's row is locked while its job is written and its next instant set, in one transaction: whoever comes second
finds the entry not due. Instants that passed while no worker ran give one job, the latest; the earlier are skipped.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from penstock.errors import PenstockError
from penstock.model.limits import DEFAULT_PRIORITY
from penstock.policy.cron import Schedule
from penstock.storage import catalogue, crons
from penstock.storage.database import Connection

__all__ = ["fire_crons"]

log = logging.getLogger("penstock")


def fire_crons(connection: Connection) -> int:
    """Write the jobs of all entries that are due; how many."""
    with connection.transaction():
        due = crons.due(connection)
        if not due:
            return 0
        queues = {queue.id: queue for queue in catalogue.read_queues(connection)}
        now = crons.database_now(connection)
        fired = 0
        for entry in due:
            try:
                schedule = Schedule(entry.expression, entry.timezone)
                instant = schedule.previous_at_or_before(now)
                upcoming = schedule.next_after(now)
            except PenstockError as error:
                log.error("cron %r cannot be read and is passed over: %s", entry.name, error)
                crons.advance(connection, entry.name, datetime(9998, 1, 1, tzinfo=UTC), entry.next_at)
                continue
            crons.enqueue(connection, queues[entry.queue_id], entry, {"instant": instant.isoformat()}, DEFAULT_PRIORITY)
            crons.advance(connection, entry.name, upcoming, instant)
            fired += 1
        return fired
