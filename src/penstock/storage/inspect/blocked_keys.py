"""Keys that wait for the retry of one of their jobs, or for a person; of very many those that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = ["Behind", "Blocked", "count_behind", "count_behind_dead", "read_halted_keys", "read_held_keys"]


# So many ready jobs are looked at, to count those behind one dead letter.
MOST_BEHIND = 2_000


class Blocked(NamedTuple):
    """A key, the job that holds it, since when and until when (None: a person decides).

    `can_retry`: that job has not ended for good; a dead letter may have been purged since it halted the key.
    """

    key: bytes
    job_id: int
    since: datetime
    until: datetime | None
    can_retry: bool


class Behind(NamedTuple):
    """How many ready jobs of each key were found, and whether there are some that were not looked at."""

    counts: dict[bytes, int]
    may_be_more: bool


def read_halted_keys(connection: Connection, queue_id: int, limit: int) -> list[Blocked]:
    """The keys of a queue that wait for a person, the longest first."""
    return _read(connection, "halted_keys_of_queue", queue_id, limit)


def read_held_keys(connection: Connection, queue_id: int, limit: int) -> list[Blocked]:
    """The keys of a queue that wait for the retry of a job."""
    return _read(connection, "held_keys_of_queue", queue_id, limit)


def count_behind(connection: Connection, queue_id: int, keys: Sequence[bytes], most: int) -> Behind:
    """How many jobs of each of these keys are ready, among so many of each partition."""
    given = {"queue": queue_id, "keys": list(keys), "most": most}
    counts: dict[bytes | None, int] = dict(connection.execute(query("count_behind"), given).fetchall())
    return Behind({key: count for key, count in counts.items() if key is not None}, None in counts)


def count_behind_dead(connection: Connection, job_id: int, queue: str, key: bytes) -> Behind | None:
    """The same of the key that a dead letter halts, as far as it is here; None where it halts none."""
    row = connection.execute(query("halted_by"), {"id": job_id, "queue": queue, "key": key}).fetchone()
    if row is None:
        return None
    queue_id, partitions = row
    return count_behind(connection, queue_id, [key], max(1, MOST_BEHIND // max(1, partitions)))


def _read(connection: Connection, name: str, queue_id: int, limit: int) -> list[Blocked]:
    rows = connection.execute(query(name), {"queue": queue_id, "limit": limit}).fetchall()
    return [Blocked._make(row) for row in rows]
