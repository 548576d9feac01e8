"""Deleting a queue, and what is still found in those that were.

A deleted queue stays in the catalogue under another name. Whatever is in it, left over or written by somebody who has
not heard of it, is ended: what waits is cancelled with a reason, what runs is asked to stop, dead letters become
history. The call that deletes does so, and every sweep of upkeep: a delete that was killed goes on by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from penstock.clock import system
from penstock.model.job_state import State
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.inspect.selection import Selection, looks
from penstock.storage.repair.control import cancel_jobs, purge

__all__ = ["BY_DELETE", "Held", "delete_queue", "end_deleted", "end_in_deleted", "held_by_deleted", "is_of_deleted"]

# Why jobs were cancelled.
BY_DELETE = "its queue was deleted"
# What one sweep takes: upkeep has other duties.
SWEEP_SECONDS = 1.0
_KEYS = 10_000


class Held(NamedTuple):
    """What a partition of a deleted queue still has; `opened`: ready or running."""

    partition_id: int
    opened: int
    scheduled: int
    blocked: int
    dead: int


def delete_queue(connection: Connection, queue_id: int) -> bool:
    """Delete a queue; False where it was already."""
    row = connection.execute(query("delete_queue"), {"queue": queue_id}).fetchone()
    return bool(row and row[0])


def held_by_deleted(connection: Connection) -> list[Held]:
    """What deleted queues hold in this database."""
    return [Held(*row) for row in connection.execute(query("held_by_deleted")).fetchall()]


def is_of_deleted(connection: Connection, job_id: int) -> bool:
    """Whether a job's queue was deleted."""
    row = connection.execute(query("is_of_deleted"), {"id": job_id}).fetchone()
    return bool(row and row[0])


def end_deleted(connection: Connection) -> int:
    """End some of what deleted queues hold, for as long as a sweep may take; how many jobs."""
    row = connection.execute(query("forget_deleted"), {"limit": _KEYS}).fetchone()
    if row is None or row[0] is None:
        return 0  # No queue was deleted: that is all there is to ask.
    until = system.monotonic() + SWEEP_SECONDS
    return end_in_deleted(connection, may_go_on=lambda: system.monotonic() < until)


def end_in_deleted(
    connection: Connection,
    partitions: Collection[int] | None = None,
    *,
    may_go_on: Callable[[], bool] = lambda: True,
) -> int:
    """End what is in these partitions of deleted queues, or in any; how many jobs ended or were asked to stop."""
    count = 0
    for held in held_by_deleted(connection):
        if partitions is not None and held.partition_id not in partitions:
            continue
        here = (held.partition_id,)
        # Blocked ones before ready ones, which they may become; running ones last: what starts meanwhile is met there.
        for state, jobs in (
            (State.BLOCKED, held.blocked),
            (State.SCHEDULED, held.scheduled),
            (State.READY, held.opened),
            (State.FAILED, held.dead),
        ):
            if jobs:
                count += purge(connection, here, state, BY_DELETE, may_go_on=may_go_on)
        if held.opened and may_go_on():
            running = Selection(partitions=here, state=State.RUNNING)
            for found in looks(connection, running):
                if found.ids:
                    count += len(cancel_jobs(connection, found.ids, BY_DELETE).asked)
    return count
