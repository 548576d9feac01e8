"""The catalogue: which queues there are, their partitions and options, and which tasks were announced.

A declaration creates a queue; afterwards the database's word counts. What differs is reported, never overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import errors

from penstock.errors import InvalidJob, NotFound
from penstock.model.queue import QueueDefinition
from penstock.storage.database import Connection
from penstock.storage.queries import query

__all__ = [
    "QueueEntry",
    "announce_task",
    "declare_queue",
    "find_queue",
    "open_depths",
    "read_queues",
    "set_limits",
    "set_paused",
    "waiting_in",
]


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A queue as the database knows it; partitions in order, partition 0 first."""

    id: int
    name: str
    max_length: int | None
    max_wait: float | None
    is_paused: bool
    partition_ids: tuple[int, ...]
    partition_names: tuple[str, ...]

    def differences(self, declared: QueueDefinition) -> list[str]:
        """What a declaration says otherwise than the database."""
        pairs = (
            ("partitions", declared.partitions, len(self.partition_ids)),
            ("max_length", declared.max_length, self.max_length),
            ("max_wait", declared.max_wait, self.max_wait),
        )
        return [f"{name}={here} (the database has {there})" for name, here, there in pairs if here != there]


def declare_queue(connection: Connection, declared: QueueDefinition) -> QueueEntry:
    """Create the queue unless it exists; what the database has."""
    try:
        with connection.transaction():
            row = connection.execute(
                query("declare_queue"),
                {"name": declared.name, "max_length": declared.max_length, "max_wait": declared.max_wait},
            ).fetchone()
            if row is not None:
                connection.execute(
                    query("declare_partitions"),
                    {"queue_id": row[0], "name": declared.name, "partitions": declared.partitions},
                )
    except errors.UniqueViolation:
        owner = connection.execute(query("queue_of_partition_name"), {"name": declared.name}).fetchone()
        raise InvalidJob(
            "queue",
            f"{declared.name!r} or one of its partitions bears a name that queue {owner[0] if owner else '?'!r} "
            "already uses for a partition; choose another name",
        ) from None
    return find_queue(connection, declared.name)


def announce_task(connection: Connection, queue_id: int, name: str, max_attempts: int) -> None:
    """Tell how many attempts a task's jobs have: whoever rescues them may not know the task."""
    connection.execute(query("declare_task"), {"queue_id": queue_id, "name": name, "max_attempts": max_attempts})


def read_queues(connection: Connection, name: str | None = None) -> list[QueueEntry]:
    """Every queue, or the one of that name."""
    rows = connection.execute(query("read_queues"), {"name": name}).fetchall()
    return [
        QueueEntry(id_, queue, max_length, max_wait, is_paused, tuple(ids), tuple(names))
        for id_, queue, max_length, max_wait, is_paused, ids, names in rows
    ]


def find_queue(connection: Connection, name: str) -> QueueEntry:
    """The queue of that name, or NotFound."""
    found = read_queues(connection, name)
    if not found:
        raise NotFound(f"queue {name!r} does not exist: declare it with app.queue({name!r}), or see `penstock stats`")
    return found[0]


def open_depths(connection: Connection, partitions: tuple[int, ...]) -> list[int]:
    """Jobs ready or leased, a number a partition, in the order given."""
    depths: dict[int, int] = dict(connection.execute(query("read_depths"), {"partitions": list(partitions)}).fetchall())
    return [depths.get(partition, 0) for partition in partitions]


def waiting_in(connection: Connection, partition: int) -> int:
    """Jobs that wait in a partition: what max_length bounds."""
    row = connection.execute(query("waiting_in"), {"partition": partition}).fetchone()
    return int(row[0]) if row else 0


def set_paused(connection: Connection, name: str, is_paused: bool) -> None:
    """Stop or go on giving out a queue's jobs."""
    if connection.execute(query("set_paused"), {"name": name, "is_paused": is_paused}).fetchone() is None:
        find_queue(connection, name)


def set_limits(connection: Connection, name: str, max_length: int | None, max_wait: float | None) -> None:
    """Change how long a queue and a wait in it may be."""
    values = {"name": name, "max_length": max_length, "max_wait": max_wait}
    if connection.execute(query("set_limits"), values).fetchone() is None:
        find_queue(connection, name)
