"""Another number of partitions for a queue in use.

The new number counts at once, for every producer. The rest is upkeep's: closing the old map and draining what was
written by it. So this may be killed or called again at any point.
"""

from __future__ import annotations

from penstock.model.limits import MOST_PARTITIONS, checked_count
from penstock.model.resize import Resize
from penstock.storage import Connection, Database
from penstock.storage import resize as storage
from penstock.storage.catalogue import find_queue

__all__ = ["resize"]


def resize(database: Database, queue: str, partitions: int) -> Resize:
    """Give a queue so many partitions, and tell how far it is; the same number again only tells."""
    checked_count("partitions", partitions, most=MOST_PARTITIONS)

    def act(connection: Connection) -> Resize:
        storage.resize(connection, queue, partitions)
        storage.drain(connection)
        entry = find_queue(connection, queue)
        draining = storage.draining(connection, entry.id)
        return Resize(
            queue=queue,
            partitions=entry.partition_count,
            epoch=entry.epoch,
            draining=draining,
            is_through=not draining and storage.is_drained(connection, entry.id),
        )

    return database.run(act)
