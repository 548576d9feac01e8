"""A shard as it is read back: one of the databases over which the partitions of all queues are spread."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Shard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One database of an app.

    `health` is "up", "read-only" or "down"; `state` is "active", "draining" or "drained". `partitions` counts those
    that queues use there now, `queued` the ready jobs, `running` those under a lease: 0 where it does not answer, and
    `reason` says why it does not.
    """

    name: str
    url: str = field(repr=False)  # it holds a password
    address: str
    health: str
    state: str
    partitions: int
    queued: int
    running: int
    reason: str = ""
