"""The figures of a queue and of each of its partitions, as read at one call.

`queue_length` counts the ready jobs, `active_count` those under a lease and started, `dead` the dead letters; the
totals count since the queue was made, and only grow. `total_failed` counts each time that a job became a dead letter; a
job that was cancelled for one counts once in `total_cancelled`, also where it came back since. `limit` is how many may
run: in a partition just now, in the queue in all of its partitions together. Figures of several partitions are not one
snapshot: they are exact once no worker runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from penstock.model.rules import QueueRules
from penstock.model.short_repr import ShortRepr

__all__ = ["PartitionStats", "Stats"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Counters(ShortRepr):
    queue_length: int = 0
    active_count: int = 0
    scheduled: int = 0
    blocked: int = 0
    dead: int = 0
    limit: int | None = None
    oldest_enqueued_at: datetime | None = None
    total_enqueued: int = 0
    total_completed: int = 0
    total_failed: int = 0
    total_cancelled: int = 0
    total_discarded: int = 0
    total_expired: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PartitionStats(_Counters):
    """The figures of one partition, where it lives, and who owns it; `owner_epoch` grows with each change of that.

    One that is not `is_current` was removed by a resize, and is worked off. One that moved may have something left on
    the shards where it was before: they are in `left_on`.
    """

    name: str
    shard: str
    owner: str | None = None
    owner_epoch: int = 0
    is_current: bool = True
    left_on: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Stats(_Counters):
    """Figures of a queue, and the rules it has.

    `partitions` starts with partition 0; `epoch` counts the key maps the queue has had; `unavailable` are the shards
    that did not answer.
    """

    queue: str
    epoch: int = 1
    paused: bool = False
    rules: QueueRules = field(default_factory=QueueRules)
    partitions: list[PartitionStats] = field(default_factory=list)
    unavailable: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        queue: str,
        partitions: Iterable[PartitionStats],
        *,
        rules: QueueRules | None = None,
        unavailable: Iterable[str] = (),
    ) -> Self:
        """The figures of a queue, added up from those of its partitions."""
        parts = list(partitions)
        rules = rules or QueueRules()
        return cls(
            queue=queue,
            paused=rules.paused,
            rules=rules,
            partitions=parts,
            unavailable=list(unavailable),
            queue_length=sum(part.queue_length for part in parts),
            active_count=sum(part.active_count for part in parts),
            scheduled=sum(part.scheduled for part in parts),
            blocked=sum(part.blocked for part in parts),
            dead=sum(part.dead for part in parts),
            limit=rules.most_running(len(parts)),
            oldest_enqueued_at=min(
                (p.oldest_enqueued_at for p in parts if p.oldest_enqueued_at is not None), default=None
            ),
            total_enqueued=sum(part.total_enqueued for part in parts),
            total_completed=sum(part.total_completed for part in parts),
            total_failed=sum(part.total_failed for part in parts),
            total_cancelled=sum(part.total_cancelled for part in parts),
            total_discarded=sum(part.total_discarded for part in parts),
            total_expired=sum(part.total_expired for part in parts),
        )
