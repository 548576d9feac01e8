"""Cron: entries that are due become jobs, one for each (entry, instant).

The entry's row is locked while its job is written and its next instant set, in one transaction: whoever comes second
finds the entry not due. Workers that are late by seconds make up for every instant. Of those that passed while none ran
for longer only the latest gives a job; the earlier are skipped.

Where a map of keys changes an entry may find itself in another database than its jobs. There it does not fire; it moves
(see `shards/crons.py`).
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from penstock.errors import PenstockError
from penstock.model.checks import DEFAULT_PRIORITY
from penstock.policy.cron import Schedule
from penstock.shards.membership import read_membership
from penstock.storage.catalogue import crons
from penstock.storage.catalogue import queues as catalogue
from penstock.storage.connection.database import Connection
from penstock.storage.connection.error_meaning import DatabaseError, first_line, is_about_data

__all__ = ["fire_crons"]

log = logging.getLogger("penstock")

# Workers may be so late: a round of upkeep, a slow database, a restart of either.
LATE = timedelta(seconds=10)


def fire_crons(connection: Connection) -> int:
    """Write the jobs of all entries that are due and at home; how many. An entry whose job is refused stays due, and is
    told by an error when all the others have fired.
    """
    fired = 0
    last: crons.CronEntry | None = None
    refused: list[str] = []
    while True:
        with connection.transaction():
            due = crons.due(connection, last)
            fired += _fire_in_pieces(connection, due, refused)
        if not due:
            break
        last = due[-1]
    if refused:
        raise PenstockError("; ".join(refused[:10]) + ("; ..." if len(refused) > 10 else ""))
    return fired


def _fire_in_pieces(connection: Connection, due: list[crons.CronEntry], refused: list[str]) -> int:
    """Fire these, by halves where that is refused; what is refused alone is added to `refused`."""
    if not due:
        return 0
    try:
        with connection.transaction():
            return _fire(connection, due)
    except DatabaseError as error:
        if not is_about_data(error):
            raise
        if len(due) == 1:
            refused.append(f"cron {due[0].name!r} cannot fire: {first_line(error)}")
            return 0
    half = len(due) // 2
    return _fire_in_pieces(connection, due[:half], refused) + _fire_in_pieces(connection, due[half:], refused)


def _fire(connection: Connection, due: list[crons.CronEntry]) -> int:
    here = read_membership(connection).number
    queues = {queue.id: queue for queue in catalogue.read_queues(connection)}
    now = crons.database_now(connection)
    has_map: dict[int, bool] = {}
    firings: list[crons.Firing] = []
    advanced: list[crons.Fired] = []
    for entry in due:
        queue = queues.get(entry.queue_id)
        if queue is None:
            continue  # Its queue was deleted, and it goes.
        if queue.is_refused:
            continue  # A newer program fires it.
        if crons.home_of(queue, entry.key) != here:
            continue  # It moves.
        if queue.id not in has_map:
            has_map[queue.id] = crons.lock_key_map(connection, queue)
        if not has_map[queue.id]:
            continue  # Its queue gets another map: the next round knows.
        try:
            instants, upcoming = _instants(Schedule(entry.expression, entry.timezone), entry.next_at, now)
        except PenstockError as error:
            log.error("cron %r cannot be read and is passed over: %s", entry.name, error)
            advanced.append(crons.Fired(entry.name, datetime(9998, 1, 1, tzinfo=UTC), entry.next_at, None))
            continue
        firings += [crons.Firing(queue, entry, {"instant": instant.isoformat()}) for instant in instants]
        advanced.append(crons.Fired(entry.name, upcoming, instants[-1], None))
    ids = crons.enqueue(connection, firings, DEFAULT_PRIORITY, here) if firings else []
    if ids is None:
        return 0
    if advanced:
        last_jobs = {firing.entry.name: id_ for firing, id_ in zip(firings, ids, strict=True)}
        crons.advance(connection, [each._replace(last_job=last_jobs.get(each.name)) for each in advanced])
    return len(firings)


def _instants(schedule: Schedule, next_at: datetime, now: datetime) -> tuple[list[datetime], datetime]:
    """The instants to fire for, and the one after them. Where workers are only late each of them counts; where none ran
    for longer, the latest.
    """
    if now - next_at > LATE:
        return [schedule.previous_at_or_before(now)], schedule.next_after(now)
    instants: list[datetime] = []
    upcoming = schedule.next_after(next_at - timedelta(microseconds=1))
    while upcoming <= now:
        instants.append(upcoming)
        upcoming = schedule.next_after(upcoming)
    return instants or [schedule.previous_at_or_before(now)], upcoming
