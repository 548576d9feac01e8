"""The catalogue: which queues there are, their partitions and options, and which tasks were announced.

A declaration creates a queue; afterwards the database's word counts. What differs is reported, never overwritten.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg import errors

from penstock.errors import InvalidInput, NotFound
from penstock.model.queue import USUAL_PARTITIONS, QueueDefinition
from penstock.model.rules import QueueRules, refuse_unknown_rules
from penstock.routing.placement import Depth
from penstock.routing.router import KeyMap
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = [
    "QueueEntry",
    "announce_task",
    "declare_queue",
    "find_queue",
    "queue_of_partition",
    "read_depths",
    "read_queues",
    "rules_of",
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
    """A queue as the database knows it: its rules, its partitions in order, partition 0 first.

    `partition_count` are in use; those beyond it were removed or moved away, and are served until they are empty.
    """

    id: int
    name: str
    rules: QueueRules
    # As they are stored, with what only newer programs know.
    stored_rules: Mapping[str, Any]
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

    @property
    def is_refused(self) -> bool:
        """Whether it has rules that this program does not know and must not ignore."""
        return bool(self.rules.unknown_in(self.stored_rules))

    def differences(self, declared: QueueDefinition) -> list[str]:
        """What a declaration says otherwise than the database, whose word counts; what it leaves as usual is none."""
        different = declared.rules.differences(self.rules)
        if declared.partitions not in (USUAL_PARTITIONS, self.partition_count):
            different.insert(0, f"partitions={declared.partitions} (the database has {self.partition_count})")
        return different

    @property
    def key_map(self) -> KeyMap:
        """Where its keys and idempotency keys go."""
        return KeyMap(self.partition_shards[: self.partition_count], self.homes, self.is_owned)


def declare_queue(connection: Connection, declared: QueueDefinition, avoid: Sequence[int] = ()) -> QueueEntry:
    """Create the queue unless it exists, with no partition on the shards to avoid; what the database has."""
    try:
        connection.execute(
            query("declare_queue"),
            {
                "name": declared.name,
                "partitions": declared.partitions,
                "avoid": array_text(avoid),
                **_rule_columns(declared.rules, {}),
            },
        )
    except errors.UniqueViolation:
        other = queue_of_partition(connection, declared.name)
        raise InvalidInput(
            "queue",
            f"{declared.name!r} or one of its partitions bears a name that queue {other or '?'!r} "
            "already uses for a partition; choose another name",
        ) from None
    return find_queue(connection, declared.name)


def announce_task(connection: Connection, queue_id: int, name: str, max_attempts: int) -> bool:
    """Tell how many attempts a task's jobs have: whoever rescues them may not know the task.

    Nothing is written, and False returned, on a shard that has not yet heard of the queue.
    """
    told = {"queue_id": queue_id, "name": name, "max_attempts": max_attempts}
    row = connection.execute(query("declare_task"), told).fetchone()
    return bool(row and row[0])


def read_queues(connection: Connection, name: str | None = None, *, deleted: bool = False) -> list[QueueEntry]:
    """Every queue, or the one of that name; with those that were deleted where these are asked for."""
    rows = connection.execute(query("read_queues"), {"name": name, "deleted": deleted}).fetchall()
    return [_to_entry(row) for row in rows]


def _to_entry(row: Sequence[Any]) -> QueueEntry:
    id_, name, rules, weights, is_paused, is_owned, epoch, count, ids, names, shards, homes, version, former = row
    stored = json.loads(rules)
    return QueueEntry(
        id_,
        name,
        rules_of(stored, weights, is_paused),
        stored,
        is_owned,
        epoch,
        count,
        tuple(ids),
        tuple(names),
        tuple(shards),
        tuple(homes),
        version,
        tuple(FormerMap(*each) for each in json.loads(former or "[]")),
    )


def rules_of(stored: Mapping[str, Any], weights: bytes | None, is_paused: bool) -> QueueRules:
    """The rules of a queue from the columns of its row."""
    return QueueRules.from_json(stored, None if weights is None else json.loads(weights), is_paused=is_paused)


def find_queue(connection: Connection, name: str, *, deleted: bool = False) -> QueueEntry:
    """The queue of that name, or NotFound; SchemaMismatch where this program may not work on it.

    `deleted`: one that was deleted is found, too, by the name that it has since.
    """
    found = read_queues(connection, name, deleted=deleted)
    if not found:
        row = connection.execute(query("deleted_since"), {"name": name}).fetchone()
        if row is None:
            raise NotFound(
                f"queue {name!r} does not exist: declare it with app.queue({name!r}), or by PUT queues/{{queue}} over "
                "HTTP; app.queues(), GET queues and `penstock stats` tell those that do"
            )
        at, since = row
        raise NotFound(
            f"queue {name!r} was deleted at {at:%Y-%m-%d %H:%M:%S %Z}: declare it with app.queue({name!r}) to have it "
            f"anew; what is left of its jobs is found by app.jobs(queue={since!r}), or `penstock jobs --queue "
            f"{shlex.quote(since)}`"
        )
    refuse_unknown_rules(name, found[0].rules.unknown_in(found[0].stored_rules))
    return found[0]


def queue_of_partition(connection: Connection, name: str) -> str | None:
    """The name of the queue that has, or had, a partition of this name."""
    row = connection.execute(query("queue_of_partition_name"), {"name": name}).fetchone()
    return None if row is None else str(row[0])


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
        changed = entry.rules.changed(name, options)
        columns = _rule_columns(changed, entry.stored_rules)
        connection.execute(query("set_rules"), {"name": name, "version": row and row[0], **columns})
        if changed.rate is not None and changed.rate != entry.rules.rate:
            connection.execute(query("fit_buckets"), queue)
        if changed.total_limit is not None and entry.rules.total_limit is None:
            connection.execute(query("forget_permits"), queue)
    # After the commit: a worker that read the old limits and fell asleep before it is seen now, and woken.
    connection.execute(query("wake_queue"), queue)


def _rule_columns(rules: QueueRules, stored: Mapping[str, Any]) -> dict[str, str | None]:
    """The columns of a queue's row that hold its rules, over what they held."""
    weights = None if rules.weights is None else json.dumps(rules.weights)
    return {"rules": json.dumps(rules.to_json(stored)), "weights": weights}
