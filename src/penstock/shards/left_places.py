"""What becomes of the place that a partition left: nothing starts there any more, and what waits there is carried to
where the partition is by now.

That is so where only one place may start jobs, since the queue has a limit or a rate, and where the shard is being
drained; see `schema/functions/shards/96_left_places.sql`. Elsewhere jobs end where they are.

    empty_left_places  for partitions that moved, on every shard. It is upkeep's: anybody may call it, any number of
                       times, at once, and whatever was killed goes on by it
    send_and_carry     for one shard, whichever way its partitions left
"""

from __future__ import annotations

from penstock.shards.carrying import carry
from penstock.shards.databases import Databases
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.queries import query
from penstock.storage.connection.refusals import LockNotAvailable

__all__ = ["empty_left_places", "send_and_carry"]

ANSWER_SECONDS = 5.0
# So many rows of each kind are sent at once, and so often in one call: upkeep has other duties.
ROWS = 50
ROUNDS = 20


def empty_left_places(databases: Databases) -> int:
    """Shut the earlier places of partitions that moved and carry what waits there; how many jobs."""

    def act(database: Database) -> int:
        return send_and_carry(databases, database) if database.ask(_has_any, timeout=ANSWER_SECONDS) else 0

    return sum(databases.each_database(act))


def send_and_carry(databases: Databases, database: Database) -> int:
    """Shut the places on a shard that partitions left, and carry what waits there; how many jobs."""
    done = 0
    for _ in range(ROUNDS):
        sent = database.ask(_send_off, timeout=ANSWER_SECONDS)
        done += sent + carry(databases)
        if not sent:
            break
    return done


def _has_any(connection: Connection) -> bool:
    row = connection.execute(query("has_left_places")).fetchone()
    return bool(row and row[0])


def _send_off(connection: Connection) -> int:
    try:
        row = connection.execute(query("send_off"), {"rows": ROWS}).fetchone()
    except LockNotAvailable:
        return 0  # Somebody holds what is next in turn.
    return int(row[0]) if row else 0
