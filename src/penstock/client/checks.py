"""What would refuse a call is looked for before it is written, as far as what writes it does not do so."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from penstock.client.call import PlannedWrite, Waves
from penstock.errors import PartitionUnavailable, QueueFull
from penstock.shards.databases import Databases
from penstock.shards.depths import Depths
from penstock.shards.parents import check_parents
from penstock.storage.catalogue import queues as catalogue
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.connection.database import Connection

__all__ = ["Checks"]


class Checks:
    """One per producer; used by any number of threads."""

    def __init__(self, databases: Databases, depths: Depths) -> None:
        self._databases = databases
        self._depths = depths

    def check_all(self, waves: Waves) -> None:
        """Find what would refuse a call of several writes before one of them is carried out."""
        self.check_parents(waves)
        for write in (write for wave in waves for write in wave if write.has_max_length):
            # A database that does not answer is asked when its write is carried out.
            with suppress(PartitionUnavailable):
                database = self._databases.of(write.shard)
                if not database.breaker.is_down:
                    database.run(partial(self.check_lengths, write), writes=False)
                    write.is_checked = True

    def check_lengths(self, write: PlannedWrite, connection: Connection) -> None:
        """Refuse a write by which a partition would grow longer than its queue allows."""
        self._depths.fold(write.shard, connection)
        counts: dict[tuple[int, int], int] = {}
        for group in write.groups:
            bounded = group.destination.queue_id, group.destination.partition_id
            counts[bounded] = counts.get(bounded, 0) + len(group.args)
        for (queue, partition), count in counts.items():
            entry = write.entries[queue]
            most = entry.rules.max_length
            if most is not None and catalogue.waiting_in(connection, partition) + count > most:
                raise QueueFull(entry.name, most)

    def admit(self, shard: int, asked: Sequence[tuple[QueueEntry, int, int]], connection: Connection) -> list[bool]:
        """Which of several calls may be written together, the first one first; of each its queue, partition and count.

        A partition does not grow longer by all of them than its queue allows.
        """
        self._depths.fold(shard, connection)
        lengths: dict[int, int] = {}
        admitted: list[bool] = []
        for entry, partition, count in asked:
            most = entry.rules.max_length
            if most is not None and partition not in lengths:
                lengths[partition] = catalogue.waiting_in(connection, partition)
            admitted.append(most is None or lengths[partition] + count <= most)
            if most is not None and admitted[-1]:
                lengths[partition] += count
        return admitted

    def check_parents(self, waves: Waves) -> None:
        """Refuse parents that are nowhere, as far as what writes their children does not do it."""
        writes = (write for wave in waves for write in wave)
        check_parents(
            self._databases,
            (
                (parents, write.shard)
                for write in writes
                for group in write.groups
                for parents in (group.parents or {}).values()
            ),
        )
