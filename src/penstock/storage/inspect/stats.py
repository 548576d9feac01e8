"""The figures of queues: how much waits, runs, is planned, and was done.

They are read from running totals, never counted from the jobs, so that they cost the same at any backlog: the folded
totals, plus what has been appended since. Where no worker lives to fold that, the reader does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from penstock.model.rules import QueueRules
from penstock.model.stats import PartitionStats, Stats
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.upkeep.sweep import fold_if_long

__all__ = ["StoredFigures", "queue_stats", "read_figures", "read_stats"]


class StoredFigures(NamedTuple):
    """What a database has of a partition: its owner, by which change, when its oldest ready job was enqueued, permits,
    counts.
    """

    owner: str | None = None
    owner_epoch: int = 0
    oldest: datetime | None = None
    permits: int = 0
    queue_length: int = 0
    active_count: int = 0
    scheduled: int = 0
    blocked: int = 0
    dead: int = 0
    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    discarded: int = 0
    expired: int = 0


_NOTHING = StoredFigures()


def read_stats(connection: Connection, queue: QueueEntry) -> Stats:
    """The figures of one queue and of each of its partitions, as far as they are in this database."""
    return queue_stats(queue, read_figures(connection, queue.partition_ids))


def read_figures(connection: Connection, partitions: Iterable[int]) -> dict[int, StoredFigures]:
    """The figures of these partitions that this database has, by partition."""
    ids = array_text(partitions)
    fold_if_long(connection)
    rows = connection.execute(query("read_stats"), {"partitions": ids}).fetchall()
    oldest = _oldest(connection, ids)
    return {id_: StoredFigures(owner, epoch, oldest.get(id_), *counts) for id_, owner, epoch, *counts in rows}


def queue_stats(queue: QueueEntry, figures: Mapping[int, StoredFigures], unavailable: Sequence[str] = ()) -> Stats:
    """A queue's figures, put together from those of its partitions on whichever shard.

    A partition that moved is there twice until the old place is empty, and is shown once, where it is now.
    """
    places: dict[str, list[int]] = {}
    for index, name in enumerate(queue.partition_names):
        places.setdefault(name, []).append(index)
    partitions = {name: _partition(queue, indexes, figures) for name, indexes in places.items()}
    stats = Stats.of(queue.name, partitions.values(), rules=queue.rules, unavailable=unavailable)
    # What a partition that was removed did in its life counts; it is shown while it still has something.
    current = queue.partition_names[: queue.partition_count]
    removed = [part for name, part in partitions.items() if name not in current and _has_jobs(part)]
    limit = queue.rules.most_running(queue.partition_count)
    shown = [*(partitions[name] for name in current), *(replace(part, is_current=False) for part in removed)]
    return replace(stats, limit=limit, epoch=queue.epoch, partitions=shown)


def _has_jobs(part: PartitionStats) -> bool:
    return any((part.queue_length, part.active_count, part.scheduled, part.blocked, part.dead))


def _oldest(connection: Connection, partitions: str) -> dict[int, datetime]:
    """When the oldest job that is ready was enqueued, by partition."""
    heads = connection.execute(query("ready_heads"), {"partitions": partitions}).fetchall()
    if not heads:
        return {}
    ids = array_text({job_id for _, job_id in heads})
    enqueued_at: dict[int, datetime] = dict(
        connection.execute(query("enqueued_ats"), {"ids": ids}, prepare=False).fetchall()
    )
    oldest: dict[int, datetime] = {}
    for partition, job_id in heads:
        if job_id in enqueued_at:
            oldest[partition] = min(oldest.get(partition, enqueued_at[job_id]), enqueued_at[job_id])
    return oldest


def _limit(rules: QueueRules, permits: int) -> int | None:
    """How many may run in a partition now."""
    if rules.total_limit is None:
        return rules.limit
    return permits if rules.limit is None else min(rules.limit, permits)


def _partition(queue: QueueEntry, indexes: Sequence[int], figures: Mapping[int, StoredFigures]) -> PartitionStats:
    found = [figures.get(queue.partition_ids[index], _NOTHING) for index in indexes]
    first = indexes[0]
    return PartitionStats(
        name=queue.partition_names[first],
        shard=str(queue.partition_shards[first]),
        owner=found[0].owner,
        owner_epoch=found[0].owner_epoch,
        left_on=[
            str(queue.partition_shards[index])
            for index, each in zip(indexes[1:], found[1:], strict=True)
            if any((each.queue_length, each.active_count, each.scheduled, each.blocked, each.dead))
        ],
        limit=_limit(queue.rules, sum(each.permits for each in found)),
        queue_length=sum(each.queue_length for each in found),
        active_count=sum(each.active_count for each in found),
        scheduled=sum(each.scheduled for each in found),
        blocked=sum(each.blocked for each in found),
        dead=sum(each.dead for each in found),
        oldest_enqueued_at=min((each.oldest for each in found if each.oldest is not None), default=None),
        total_enqueued=sum(each.enqueued for each in found),
        total_completed=sum(each.completed for each in found),
        total_failed=sum(each.failed for each in found),
        total_cancelled=sum(each.cancelled for each in found),
        total_discarded=sum(each.discarded for each in found),
        total_expired=sum(each.expired for each in found),
    )
