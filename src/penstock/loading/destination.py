"""Where the rows of a load go: the partitions of its queue as they are when it begins, and the shards they are on."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from penstock.shards.shard_urls import ShardUrls
from penstock.storage.catalogue.queues import QueueEntry

__all__ = ["Destination", "find_destination"]

log = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class Destination:
    """The queue of a load; sent to every process that writes some of it."""

    shards: ShardUrls
    queue: str
    # Of the queue's key map; None for a plain queue, which routes by none.
    epoch: int | None
    # Partition by partition: its id and its shard.
    partition_ids: tuple[int, ...]
    partition_shards: tuple[int, ...]
    # The shards over which idempotency keys are spread.
    homes: tuple[int, ...]
    # How many of the load's writers may write at once.
    connections: int


def find_destination(
    shards: ShardUrls, queue: str, entry: QueueEntry, connections: int, *, has_key: bool
) -> Destination:
    """Where the rows of a load into a queue go, by its entry in the catalogue."""
    if entry.rules.has_key_rule and not has_key:
        log.warning("queue %r has rules about keys, and no column is the key: its jobs have no order", queue)
    return Destination(
        shards=shards,
        queue=queue,
        epoch=entry.epoch if entry.is_owned else None,
        partition_ids=entry.partition_ids[: entry.partition_count],
        partition_shards=entry.partition_shards[: entry.partition_count],
        homes=entry.homes,
        connections=connections,
    )
