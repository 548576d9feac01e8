"""How long jobs had waited when a poll was given them, and how long they ran: from then until their end was told.

Counted by queue, for the figures of each minute, by the server that did the turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.server.remote.turns import Order
from penstock.storage.work.leases import Lease
from penstock.storage.work.remote_workers import GivenLease
from penstock.upkeep.queue_times import QueueTimes

__all__ = ["count_runs", "waits_of"]


def waits_of(given: Iterable[GivenLease], leases: Iterable[Lease]) -> dict[int, list[int]]:
    """How long the jobs of leases had been ready when they were given, by queue; in microseconds."""
    queues = {each.partition_id: each.queue_id for each in given}
    waits: dict[int, list[int]] = {}
    for lease in leases:
        queue = queues.get(lease.partition_id)
        if queue is not None:
            wait = int(max(lease.waited_seconds, 0.0) * 1e6)
            waits.setdefault(queue, []).extend([wait] * len(lease.positions))
    return waits


def count_runs(times: QueueTimes, order: Order, waits: Mapping[int, list[int]]) -> None:
    """Count the ends of a turn that was done, and what it was given. One that was handed back unstarted did not run."""
    runs: dict[int, list[int]] = {}
    if order.settled is not None:
        held = order.greeting.held
        for group in order.settled.settlement.succeeded:
            runs.setdefault(held[group.lease].queue_id, []).extend(group.runs)
        for end in order.settled.settlement.ends:
            if end.run is not None:
                runs.setdefault(held[end.lease].queue_id, []).append(end.run)
    for queue in {*runs, *waits}:
        times.add(queue, waits.get(queue, ()), runs.get(queue, ()))
