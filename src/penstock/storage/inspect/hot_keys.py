"""The keys that most of a queue's ready jobs are of.

A few thousand jobs are counted. Of more, some are looked at: those on pages of the job tables that are chosen at
random, so that it costs the same whatever waits, and each job is as likely to be met, whether it came alone or in a
range of a thousand. Where most jobs of those tables have ended by now, few are met, and more pages are read, up to a
bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = ["MOST_COUNTED", "KeyAtWork", "KeyCount", "KeyCounts", "count_keys", "keys_at_work"]

# So many jobs are counted one by one.
MOST_COUNTED = 20_000
# Of more, so many pages are read, some eighty jobs each; and again, up to so many, where so few ready jobs were met.
FEW_PAGES, MOST_PAGES = 256, 4_096
ENOUGH_JOBS = 2_000
# So many leases, and so many jobs that hold their key, are looked at.
MOST_AT_WORK = 5_000


@dataclass(slots=True)
class KeyCount:
    """How many jobs of a key are ready, and since when the oldest of them that was looked at."""

    waiting: float
    oldest_ready_at: datetime


@dataclass(slots=True)
class KeyCounts:
    """What was found on one database: how many jobs are ready, how many were looked at, how many are of each key."""

    waiting: int = 0
    looked_at: int = 0
    is_estimate: bool = False
    keys: dict[bytes, KeyCount] = field(default_factory=dict)


class KeyAtWork(NamedTuple):
    """How many jobs of a key are given out, and whether it waits for a retry or a person."""

    running: int
    is_held: bool
    is_halted: bool


Rows = Sequence[tuple[bytes | None, int, datetime]]


def count_keys(connection: Connection, partitions: Sequence[int]) -> KeyCounts:
    """How many jobs of each key are ready in these partitions, or of each that was met."""
    given = {"partitions": array_text(partitions)}
    places = connection.execute(query("ready_in_partitions"), given).fetchall()
    found = KeyCounts(waiting=sum(max(waiting, 0) for _, waiting, _, _ in places))
    if not places:
        return found
    rows: Rows
    if found.waiting > MOST_COUNTED:
        found.is_estimate = True
        rows = _read_some(connection, partitions, min(place[2] for place in places), max(place[3] for place in places))
    else:
        rows = connection.execute(query("keys_of_ready"), {**given, "most": MOST_COUNTED}).fetchall()
    found.looked_at = sum(count for _, count, _ in rows)
    each = found.waiting / found.looked_at if found.is_estimate and found.looked_at else 1.0
    found.keys = {key: KeyCount(count * each, ready_at) for key, count, ready_at in rows if key is not None}
    return found


def keys_at_work(
    connection: Connection, queue_id: int, partitions: Sequence[int], keys: Sequence[bytes]
) -> dict[bytes, KeyAtWork]:
    """What becomes of these keys just now."""
    given = {"queue": queue_id, "partitions": array_text(partitions), "keys": list(keys), "most": MOST_AT_WORK}
    return {key: KeyAtWork(*rest) for key, *rest in connection.execute(query("keys_at_work"), given).fetchall()}


def _read_some(connection: Connection, partitions: Sequence[int], first: int, last: int) -> Rows:
    given = {"partitions": array_text(partitions), "first": first, "last": last}
    row = connection.execute(query("job_pages"), given).fetchone()
    pages = max(row[0], 1) if row else 1

    def read(some: float) -> Rows:
        percent = 100 * some / pages
        return connection.execute(query("keys_of_some_ready"), {**given, "percent": percent}).fetchall()

    rows = read(FEW_PAGES)
    met = sum(count for _, count, _ in rows)
    if met >= ENOUGH_JOBS or pages <= FEW_PAGES:
        return rows
    return read(min(FEW_PAGES * ENOUGH_JOBS / max(met, 1), MOST_PAGES))
