"""Waiting for a key map. What was planned by a map that is not its queue's any more, or not open yet, was refused: the
maps are read anew, and the write is planned again.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.client.call import Call, PlannedWrite
from penstock.client.refusals import map_not_open
from penstock.clock import Clock
from penstock.errors import PartitionUnavailable
from penstock.storage.catalogue.queues import QueueEntry

__all__ = ["FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS", "MapWait"]

FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.5


class MapWait:
    """One per producer; used by any number of threads."""

    def __init__(self, find_queue_now: Callable[[str], QueueEntry], clock: Clock) -> None:
        self._find_queue_now = find_queue_now
        self._clock = clock

    def wait(self, call: Call, write: PlannedWrite, pause: float) -> float:
        """Read the maps of a write's queues anew, and pause where they are what they were: one is not open yet. How
        long to pause the next time.
        """
        entries = _queues_by_map(write)
        fresh = [self._find_queue_now(entry.name) for entry in entries]
        if any((new.id, new.epoch) != (old.id, old.epoch) for new, old in zip(fresh, entries, strict=True)):
            return FIRST_PAUSE_SECONDS
        if call.deadline.left() <= pause:
            raise self.timed_out(call, write)
        self._clock.sleep(pause)
        return min(pause * 2, LONGEST_PAUSE_SECONDS)

    @staticmethod
    def timed_out(call: Call, write: PlannedWrite) -> PartitionUnavailable:
        """The error for a write whose maps were not opened in time."""
        return map_not_open(call, write, _queues_by_map(write))


def _queues_by_map(write: PlannedWrite) -> list[QueueEntry]:
    """The queues whose maps decide whether a write is taken."""
    queues = {
        group.destination.queue_id
        for group in write.groups
        if group.destination.is_owned or group.idempotency_keys is not None
    }
    # Where there is none, a shard that is drained has refused the write.
    queues = queues or set(write.entries)
    return [entry for queue, entry in write.entries.items() if queue in queues]
