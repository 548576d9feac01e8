"""All that a monitoring system is told of one database, read by one statement: it costs the same at any backlog."""

from __future__ import annotations

from contextlib import suppress

import msgspec
from psycopg import errors

from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.upkeep.sweep import MUCH_TALLY_BYTES, fold

__all__ = ["MOST_PARKED", "PartitionFigures", "QueueFigures", "SystemFigures", "UnservedTask", "read_system_figures"]

# So many pairs of a partition and a task are looked at, of what is parked.
MOST_PARKED = 10_000


class PartitionFigures(msgspec.Struct, array_like=True, frozen=True):
    """A partition that is or was in use here; limits are None where there are none."""

    queue: str
    partition: str
    waiting: int
    running: int
    scheduled: int
    blocked: int
    dead: int
    oldest_wait_seconds: float
    enqueued: int
    completed: int
    failed: int
    cancelled: int
    discarded: int
    expired: int
    running_limit: int | None = None
    max_length: int | None = None
    rate: float | None = None
    # Starts by a rate or a total_rate.
    rate_starts: int | None = None
    # Without jobs that are parked, for which no worker is there; one that lost its place behind such a one is not seen.
    oldest_in_line_seconds: float = 0.0


class QueueFigures(msgspec.Struct, array_like=True, frozen=True):
    """What concerns a queue as a whole, as this database has it."""

    queue: str
    is_paused: bool
    total_limit: int | None
    total_rate: float | None
    halted_keys: int
    halted_seconds: float
    workers: int


class UnservedTask(msgspec.Struct, array_like=True, frozen=True):
    """A task that waits, and that no live worker here has a handler for. Who enqueues from SQL may name any task: only
    one that was announced is from the catalogue.
    """

    queue: str
    task: str
    is_announced: bool
    waited_seconds: float


class SystemFigures(msgspec.Struct, frozen=True):
    """One database."""

    takes_writes: bool
    state: str
    partitions: list[PartitionFigures]
    queues: list[QueueFigures]
    unserved: list[UnservedTask]
    workers_alive: int
    workers_silent: int
    concurrency: int
    # For how long the job that is due first has been.
    overdue_seconds: float
    failing_duties: int


_partitions = msgspec.json.Decoder(list[PartitionFigures]).decode
_queues = msgspec.json.Decoder(list[QueueFigures]).decode
_unserved = msgspec.json.Decoder(list[UnservedTask]).decode


def read_system_figures(connection: Connection) -> SystemFigures:
    """What there is to tell. Where no worker lives to fold the figures and they have grown long, the next reader finds
    them folded.
    """
    row = connection.execute(query("system_figures"), {"most_parked": MOST_PARKED}).fetchone()
    assert row is not None  # noqa: S101
    takes_writes, state, partitions, queues, unserved, *counts, tally_bytes = row
    if tally_bytes > MUCH_TALLY_BYTES:
        with suppress(errors.ReadOnlySqlTransaction, errors.InsufficientPrivilege):
            fold(connection)
    return SystemFigures(takes_writes, state, _partitions(partitions), _queues(queues), _unserved(unserved), *counts)
