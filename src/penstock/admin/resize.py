"""Another number of partitions for a queue in use, or another shard for one of them.

The new map counts for every producer as soon as this returns. The rest is upkeep's: closing the old map and draining
what was written by it. So this may be killed or called again at any point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from penstock.admin.answers import ask_everywhere
from penstock.admin.naming_partitions import partition_number
from penstock.admin.naming_shards import find_shard
from penstock.errors import InvalidInput
from penstock.model.checks import MOST_PARTITIONS, checked_count
from penstock.model.resize import Resize
from penstock.shards.databases import Databases
from penstock.shards.map_changes import change, move, tell_rest
from penstock.storage import Connection
from penstock.storage.catalogue import resize as storage
from penstock.storage.catalogue.queues import QueueEntry, find_queue

__all__ = ["move_partition", "resize", "resize_progress"]


def resize(databases: Databases, queue: str, partitions: int) -> Resize:
    """Give a queue so many partitions, and tell how far it is; the same number again only tells."""
    checked_count("partitions", partitions, most=MOST_PARTITIONS)

    def act(connection: Connection) -> bool:
        return storage.resize(connection, queue, partitions)

    if databases.read(lambda connection: find_queue(connection, queue)).partition_count != partitions:
        change(databases, queue, act)
    return _progress(databases, queue)


def move_partition(databases: Databases, queue: str, partition: int | str, shard: int | str) -> Resize:
    """Let a partition live on another shard from now on, and tell how far it is; where it is there this only tells."""
    entry = databases.read(lambda connection: find_queue(connection, queue))
    number = partition_number(entry, partition)
    target = _target(databases, shard)
    if entry.partition_shards[number] != target:
        change(databases, queue, lambda connection: move(connection, queue, [number], [target]))
    return _progress(databases, queue)


def resize_progress(databases: Databases, queue: str) -> Resize:
    """How far the last resize or move of a queue is; nothing is done for it. Of the shards that answer."""
    entry = databases.read(lambda connection: find_queue(connection, queue))
    return _told(databases, entry, ask_everywhere(databases, lambda c: storage.draining(c, entry.id)))


def _progress(databases: Databases, queue: str) -> Resize:
    entry = databases.read(lambda connection: find_queue(connection, queue))
    databases.each(storage.close)
    tell_rest(databases)
    databases.change(storage.drain)
    return _told(databases, entry, databases.each(lambda connection: storage.draining(connection, entry.id)))


def _told(databases: Databases, entry: QueueEntry, found: Iterable[list[tuple[str, int]]]) -> Resize:
    left: Counter[str] = Counter()
    for draining in found:
        left.update(dict(draining))
    draining = [(name, left[name]) for name in dict.fromkeys(entry.partition_names) if left[name]]
    is_drained = databases.read(lambda connection: storage.is_drained(connection, entry.id))
    return Resize(
        queue=entry.name,
        partitions=entry.partition_count,
        epoch=entry.epoch,
        draining=draining,
        is_through=not draining and is_drained,
    )


def _target(databases: Databases, shard: int | str) -> int:
    entry = find_shard(databases, shard)
    if entry.state != "active":
        raise InvalidInput("shard", f"shard {entry.number} is {entry.state}: choose one that is in use")
    return entry.number
