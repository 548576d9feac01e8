"""How a person names a partition: by its name, or by its number, also as text: a command line has nothing else."""

from __future__ import annotations

from penstock.errors import InvalidInput, NotFound
from penstock.model.checks import checked_name, shown
from penstock.shards.databases import Databases
from penstock.storage.catalogue.queues import QueueEntry, find_queue, queue_of_partition

__all__ = ["partition_number", "partition_places"]

# So many names are told where one is wrong.
MOST_NAMES = 16


def partition_number(entry: QueueEntry, partition: int | str) -> int:
    """The number of a partition that is in use, or NotFound."""
    current = entry.partition_names[: entry.partition_count]
    if isinstance(partition, str) and partition in current:
        return current.index(partition)
    if isinstance(partition, str) and partition.isascii() and partition.isdecimal() and len(partition) < 10:
        partition = int(partition)
    if isinstance(partition, int) and not isinstance(partition, bool) and 0 <= partition < entry.partition_count:
        return partition
    names = ", ".join(current if len(current) <= MOST_NAMES else [*current[: MOST_NAMES - 2], "…", current[-1]])
    there_are = f"give a number from 0 to {entry.partition_count - 1}, or one of its names: {names}"
    if isinstance(partition, bool) or not isinstance(partition, (int, str)):
        kind = type(partition).__name__
        raise InvalidInput("partition", f"{kind} {shown(partition)} is none of queue {entry.name!r}; {there_are}")
    raise NotFound(f"queue {entry.name!r} has no partition {shown(partition)}: {there_are}")


def partition_places(databases: Databases, queue: str | None, partition: int | str) -> tuple[int, ...]:
    """Where a partition is, and where it was as long as something may be left there; it may have been removed since."""
    if queue is None:
        if not isinstance(partition, str):
            raise InvalidInput("partition", f"give queue too, or its name as app.job tells it, not {shown(partition)}")
        name = checked_name("partition", partition)
        queue = databases.read(lambda connection: queue_of_partition(connection, name))
        if queue is None:
            raise NotFound(
                f"there is no partition {name!r}: app.stats(queue), or `penstock stats QUEUE`, tells the names of a "
                "queue's; to give its number give the queue too"
            )
    known = queue
    entry = databases.read(lambda connection: find_queue(connection, known, deleted=True))
    named = partition
    if isinstance(partition, bool) or partition not in entry.partition_names:
        named = entry.partition_names[partition_number(entry, partition)]
    return tuple(id_ for id_, each in zip(entry.partition_ids, entry.partition_names, strict=True) if each == named)
