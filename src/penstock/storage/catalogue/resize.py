"""Resizing: another number of partitions for a queue in use, and how what was there before drains.

    resize       the new map of keys to partitions is set, and counts from the commit on
    close        the old one is closed as soon as no producer has it locked any more
    list_rest    where few keys are left of it in a partition, they are listed: only these are waited for
    drain        it is drained when nothing is left

The last three are upkeep's, in every sweep, by any worker: a resize that was killed anywhere goes on by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from psycopg import errors

from penstock.errors import InvalidInput
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = ["UndrainedKeyMaps", "close", "drain", "draining", "is_drained", "list_rest", "resize"]

# The keys left in a partition are listed up to so many: each look of an owner reads the list. Where more are left,
# every key that moved from the partition waits.
MOST_KEYS = 20_000
# What one call looks at: upkeep has other duties.
JOBS_A_CALL = 20_000


class UndrainedKeyMaps(NamedTuple):
    """What jobs wait for that were routed by a later map.

    `partitions` by epoch, in order of number, of every map that is not drained and the current one; `open` are the
    (epoch, partition) with anything ready or running, `held` the (epoch, key) that are waited for elsewhere.
    """

    partitions: dict[int, list[int]]
    open: set[tuple[int, int]]
    held: set[tuple[int, bytes]]

    @classmethod
    def of(cls, rows: Iterable[tuple[Any, ...]]) -> Self:
        """From the rows of the query `undrained_maps`."""
        maps = cls({}, set(), set())
        for epoch, partitions, open_, keys in rows:
            maps.partitions[epoch] = partitions
            maps.open.update((epoch, partition) for partition in open_)
            maps.held.update((epoch, key) for key in keys)
        return maps


def resize(connection: Connection, name: str, partitions: int) -> bool:
    """Give a queue so many partitions; False where it has them. NotFound."""
    find_queue(connection, name)
    try:
        row = connection.execute(query("resize_queue"), {"name": name, "partitions": partitions}).fetchone()
    except errors.UniqueViolation as error:
        raise InvalidInput(
            "partitions",
            f"a further partition of {name!r} would bear a name that another queue uses ({error.diag.message_detail}); "
            "stay below that number",
        ) from None
    return bool(row and row[0])


def close(connection: Connection) -> int:
    """Close what nobody writes by any more on this shard; how many maps that was."""
    return _count(connection, "close_maps")


def drain(connection: Connection) -> int:
    """Close what nobody writes by any more, and tell what is drained, where this shard leads; how many either was."""
    return close(connection) + _count(connection, "drain_maps")


def list_rest(connection: Connection) -> int:
    """Go on listing the keys left by closed maps, where they are few; in how many partitions all are listed now."""
    row = connection.execute(query("has_closed_maps")).fetchone()
    return _count(connection, "list_rest", jobs=JOBS_A_CALL, keys=MOST_KEYS) if row and row[0] else 0


def draining(connection: Connection, queue_id: int) -> list[tuple[str, int]]:
    """The partitions with jobs from before a resize, by name, and how many."""
    return [(name, jobs) for name, jobs in connection.execute(query("draining_partitions"), {"queue": queue_id})]


def is_drained(connection: Connection, queue_id: int) -> bool:
    """Whether nothing is waited for of any earlier map."""
    row = connection.execute(query("is_drained"), {"queue": queue_id}).fetchone()
    return bool(row and row[0])


def _count(connection: Connection, name: str, **parameters: int) -> int:
    row = connection.execute(query(name), parameters).fetchone()
    return int(row[0] or 0) if row else 0
