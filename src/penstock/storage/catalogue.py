"""The catalogue: which queues there are, their partitions and options, and which tasks were announced.

A declaration creates a queue; afterwards the database's word counts. What differs is reported, never overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from psycopg import errors

from penstock.errors import InvalidInput, NotFound
from penstock.model.queue import QueueDefinition
from penstock.model.rate import rate_text
from penstock.routing.placement import Depth
from penstock.routing.router import KeyMap
from penstock.storage.arrays import array_text
from penstock.storage.database import Connection
from penstock.storage.queries import query

__all__ = [
    "QueueEntry",
    "announce_task",
    "declare_queue",
    "find_queue",
    "has_queue",
    "read_depths",
    "read_queues",
    "set_limits",
    "set_paused",
    "waiting_in",
]


class FormerMap(NamedTuple):
    """An earlier map whose idempotency keys may not be at their homes of now: its partitions' shards, and its homes."""

    epoch: int
    shards: Sequence[int]
    homes: Sequence[int]


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A queue as the database knows it: rates in starts a second, partitions in order, partition 0 first.

    `partition_count` are in use; those beyond it were removed or moved away, and are served until they are empty.
    """

    id: int
    name: str
    max_length: int | None
    max_wait: float | None
    is_paused: bool
    per_key: int | None
    limit: int | None
    rate: float | None
    per_key_rate: float | None
    fair_by: str | None
    weights: Mapping[str, float] | None
    holds_on_retry: bool
    halts_on_dead: bool
    is_owned: bool
    epoch: int
    partition_count: int
    partition_ids: tuple[int, ...]
    partition_names: tuple[str, ...]
    # The shard each of them lives on, and the shards its idempotency keys are spread over.
    partition_shards: tuple[int, ...]
    homes: tuple[int, ...]
    version: int
    former: tuple[FormerMap, ...]

    def contradictions(self, declared: QueueDefinition) -> list[str]:
        """What a declaration says otherwise about order: the jobs already here are kept by the database's word."""
        pairs = (
            ("order and per_key", _order_text(declared.running_per_key), _order_text(self.per_key)),
            ("fair_by", repr(declared.fair_by), repr(self.fair_by)),
        )
        return [f"{name}: {here} (the database has {there})" for name, here, there in pairs if here != there]

    def differences(self, declared: QueueDefinition) -> list[str]:
        """What a declaration says otherwise than the database, and does not matter to order."""
        pairs = [
            ("partitions", declared.partitions, self.partition_count),
            ("max_length", declared.max_length, self.max_length),
            ("max_wait", declared.max_wait, self.max_wait),
            ("limit", declared.limit, self.limit),
            ("rate", _written(declared.rate_a_second), _written(self.rate)),
            ("per_key_rate", _written(declared.key_rate_a_second), _written(self.per_key_rate)),
            ("weights", declared.weights, self.weights),
            ("on_dead", *("halt" if halts else "continue" for halts in (declared.halts_on_dead, self.halts_on_dead))),
        ]
        if declared.has_key_rule and self.has_key_rule:
            held = (declared.holds_on_retry, self.holds_on_retry)
            pairs.append(("on_retry", *("hold" if holds else "pass" for holds in held)))
        return [f"{name}={here} (the database has {there})" for name, here, there in pairs if here != there]

    @property
    def key_map(self) -> KeyMap:
        """Where its keys and idempotency keys go."""
        return KeyMap(self.partition_shards[: self.partition_count], self.homes, self.is_owned)

    @property
    def has_key_rule(self) -> bool:
        """Whether keys mean anything to this queue beyond where a job goes."""
        return self.per_key is not None or self.per_key_rate is not None

    def changed(self, options: Mapping[str, Any]) -> QueueDefinition:
        """The queue as it would be declared with other limits; `InvalidInput` where they cannot be."""
        has_order = self.per_key is not None
        given: dict[str, Any] = {
            "max_length": self.max_length,
            "max_wait": self.max_wait,
            "limit": self.limit,
            "rate": _written(self.rate),
            "per_key_rate": _written(self.per_key_rate),
            "weights": self.weights,
            **options,
        }
        if given["per_key_rate"] is None and not has_order and self.fair_by is None and self.is_owned:
            raise InvalidInput(
                "per_key_rate", f"it is queue {self.name!r}'s only rule about keys; give a rate, as '1/s'"
            )
        if given["per_key_rate"] is not None and not self.is_owned:
            raise InvalidInput(
                "per_key_rate",
                f"queue {self.name!r} was declared without a rule about keys or tenants, so that any worker takes any "
                "of its jobs; declare another queue with per_key_rate",
            )
        return QueueDefinition(
            self.name,
            self.partition_count,
            order="key" if has_order else None,
            per_key=self.per_key or 1,
            fair_by="tenant" if self.fair_by is not None else None,
            **given,
        )


def _order_text(running_per_key: int | None) -> str:
    return "order=None" if running_per_key is None else f"order='key', per_key={running_per_key}"


def _written(rate: float | None) -> str | None:
    return None if rate is None else rate_text(rate)


def declare_queue(connection: Connection, declared: QueueDefinition, avoid: Sequence[int] = ()) -> QueueEntry:
    """Create the queue unless it exists, with no partition on the shards to avoid; what the database has."""
    try:
        connection.execute(
            query("declare_queue"),
            {
                "name": declared.name,
                "partitions": declared.partitions,
                "per_key": declared.running_per_key,
                "fair_by": declared.fair_by,
                "holds_on_retry": declared.holds_on_retry,
                "halts_on_dead": declared.halts_on_dead,
                "avoid": array_text(avoid),
                **_limits(declared),
            },
        )
    except errors.UniqueViolation:
        owner = connection.execute(query("queue_of_partition_name"), {"name": declared.name}).fetchone()
        raise InvalidInput(
            "queue",
            f"{declared.name!r} or one of its partitions bears a name that queue {owner[0] if owner else '?'!r} "
            "already uses for a partition; choose another name",
        ) from None
    return find_queue(connection, declared.name)


def has_queue(connection: Connection, name: str) -> bool:
    """Whether there is a queue of that name."""
    row = connection.execute(query("queue_exists"), {"name": name}).fetchone()
    return bool(row and row[0])


def announce_task(connection: Connection, queue_id: int, name: str, max_attempts: int) -> bool:
    """Tell how many attempts a task's jobs have: whoever rescues them may not know the task.

    Nothing is written, and False returned, on a shard that has not yet heard of the queue.
    """
    told = {"queue_id": queue_id, "name": name, "max_attempts": max_attempts}
    row = connection.execute(query("declare_task"), told).fetchone()
    return bool(row and row[0])


def read_queues(connection: Connection, name: str | None = None) -> list[QueueEntry]:
    """Every queue, or the one of that name."""
    rows = connection.execute(query("read_queues"), {"name": name}).fetchall()
    return [_entry(row) for row in rows]


def _entry(row: Sequence[Any]) -> QueueEntry:
    names = [field.name for field in fields(QueueEntry)]
    stored = dict(zip(names, row, strict=True))
    stored["weights"] = None if stored["weights"] is None else json.loads(stored["weights"])
    stored["partition_ids"] = tuple(stored["partition_ids"])
    stored["partition_names"] = tuple(stored["partition_names"])
    stored["partition_shards"] = tuple(stored["partition_shards"])
    stored["homes"] = tuple(stored["homes"])
    stored["former"] = tuple(FormerMap(*each) for each in json.loads(stored["former"] or "[]"))
    return QueueEntry(**stored)


def find_queue(connection: Connection, name: str) -> QueueEntry:
    """The queue of that name, or NotFound."""
    found = read_queues(connection, name)
    if not found:
        raise NotFound(f"queue {name!r} does not exist: declare it with app.queue({name!r}), or see `penstock stats`")
    return found[0]


def read_depths(connection: Connection, partitions: tuple[int, ...]) -> list[Depth]:
    """What each of these partitions holds, in the order given."""
    rows = connection.execute(query("read_depths"), {"partitions": list(partitions)}).fetchall()
    depths = {partition: Depth(opened, expected) for partition, opened, expected in rows}
    return [depths.get(partition, Depth(0, 0)) for partition in partitions]


def waiting_in(connection: Connection, partition: int) -> int:
    """Jobs that wait in a partition: what max_length bounds."""
    row = connection.execute(query("waiting_in"), {"partition": partition}).fetchone()
    return int(row[0]) if row else 0


def set_paused(connection: Connection, name: str, is_paused: bool) -> None:
    """Stop or go on giving out a queue's jobs."""
    find_queue(connection, name)
    connection.execute(query("set_paused"), {"name": name, "is_paused": is_paused})


def set_limits(connection: Connection, name: str, options: Mapping[str, Any]) -> None:
    """Change those limits, rates and weights of a queue that are given; who waits for them is woken."""
    with connection.transaction():
        find_queue(connection, name)
        row = connection.execute(query("next_version")).fetchone()
        entry = find_queue(connection, name)
        queue = {"queue_id": entry.id}
        changed = entry.changed(options)
        connection.execute(query("set_limits"), {"name": name, "version": row and row[0], **_limits(changed)})
        if changed.rate is not None and changed.rate_a_second != entry.rate:
            connection.execute(query("fit_buckets"), queue)
    # After the commit: a worker that looked before it and has fallen asleep since is seen now.
    connection.execute(query("wake_queue"), queue)


def _limits(declared: QueueDefinition) -> dict[str, Any]:
    """What `app.limit` changes, as it is stored."""
    return {
        "max_length": declared.max_length,
        "max_wait": declared.max_wait,
        "limit": declared.limit,
        "rate": declared.rate_a_second,
        "per_key_rate": declared.key_rate_a_second,
        "weights": None if declared.weights is None else json.dumps(declared.weights),
    }
