"""Keys that wait for the retry of one of their jobs, or for a person."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = ["Blocked", "Halted", "count_behind", "read_blocked_keys", "read_halted_keys"]


class Blocked(NamedTuple):
    """A key, the job that holds it, since when and until when (None: a person decides).

    `can_retry`: that job has not ended for good; a dead letter may have been purged since it halted the key.
    """

    key: bytes
    job_id: int
    since: datetime
    until: datetime | None
    can_retry: bool


class Halted(NamedTuple):
    """A key that waits for a person, the job that halted it, since when, and whether that one is still dead."""

    key: bytes
    job_id: int
    since: datetime
    can_retry: bool


def read_halted_keys(connection: Connection, queue_id: int, limit: int) -> list[Halted]:
    """The halted keys of a queue, the oldest first."""
    rows = connection.execute(query("halted_longest"), {"queue": queue_id, "limit": limit}).fetchall()
    return [Halted._make(row) for row in rows]


def read_blocked_keys(connection: Connection, queue_id: int) -> list[Blocked]:
    """The blocked keys of a queue."""
    return [Blocked._make(row) for row in connection.execute(query("blocked_keys"), {"queue": queue_id}).fetchall()]


def count_behind(connection: Connection, queue_id: int, keys: Sequence[bytes]) -> dict[bytes, int]:
    """How many jobs of each of these keys are ready."""
    return dict(connection.execute(query("count_behind"), {"queue": queue_id, "keys": list(keys)}).fetchall())
