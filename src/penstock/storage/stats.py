"""The figures of queues: how much waits, runs, is planned, and was done.

They are read from running totals, never counted from the jobs, so that they cost the same at any backlog: the folded
totals, plus what has been appended since. Where no worker lives to fold that, the reader does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from penstock.model.rate import rate_text
from penstock.model.rules import QueueRules
from penstock.model.stats import PartitionStats, Stats
from penstock.storage.arrays import array_text
from penstock.storage.catalogue import QueueEntry, read_queues
from penstock.storage.database import Connection
from penstock.storage.queries import query
from penstock.storage.sweep import fold

__all__ = ["read_all_stats", "read_stats"]

SHARD = "1"
# About 10,000 unfolded rows: reading more takes longer than folding them.
_MUCH_TALLY_BYTES = 1_000_000


def read_stats(connection: Connection, queue: QueueEntry) -> Stats:
    """The figures of one queue and of each of its partitions."""
    return _read(connection, [queue])[0]


def read_all_stats(connection: Connection) -> list[Stats]:
    """The figures of every queue the database knows, by name."""
    return _read(connection, read_queues(connection))


def _read(connection: Connection, queues: Sequence[QueueEntry]) -> list[Stats]:
    partitions = array_text(id_ for queue in queues for id_ in queue.partition_ids)
    size = connection.execute(query("tally_bytes")).fetchone()
    if size is not None and size[0] > _MUCH_TALLY_BYTES:
        fold(connection)
    rows = connection.execute(query("read_stats"), {"partitions": partitions}).fetchall()
    figures = {row[0]: row[1:] for row in rows}
    oldest = _oldest(connection, partitions)
    return [_queue(queue, figures, oldest) for queue in queues]


def _queue(queue: QueueEntry, figures: Mapping[int, Sequence[Any]], oldest: Mapping[int, datetime]) -> Stats:
    partitions = [
        _partition(name, queue.limit, figures[id_], oldest.get(id_))
        for id_, name in zip(queue.partition_ids, queue.partition_names, strict=True)
    ]
    stats = Stats.of(queue.name, partitions, rules=_rules(queue))
    # What a partition that was removed did in its life counts; it is shown while it still has something.
    removed = [part for part in partitions[queue.partition_count :] if _has_jobs(part)]
    return replace(stats, partitions=[*partitions[: queue.partition_count], *removed])


def _rules(queue: QueueEntry) -> QueueRules:
    """The queue's options as they are written."""
    return QueueRules(
        order=None if queue.per_key is None else "key",
        per_key=queue.per_key,
        limit=queue.limit,
        rate=None if queue.rate is None else rate_text(queue.rate),
        per_key_rate=None if queue.per_key_rate is None else rate_text(queue.per_key_rate),
        fair_by=None if queue.fair_by is None else "tenant",
        weights=queue.weights,
        on_retry=None if not queue.has_key_rule else "hold" if queue.holds_on_retry else "pass",
        on_dead=None if not queue.has_key_rule else "halt" if queue.halts_on_dead else "continue",
        max_length=queue.max_length,
        max_wait=queue.max_wait,
        paused=queue.is_paused,
    )


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


def _partition(
    name: str, limit: int | None, figures: Sequence[Any], oldest_enqueued_at: datetime | None
) -> PartitionStats:
    owner, queue_length, active_count, scheduled, blocked, dead, enqueued, completed, failed = figures
    return PartitionStats(
        name=name,
        shard=SHARD,
        owner=owner,
        limit=limit,
        queue_length=queue_length,
        active_count=active_count,
        scheduled=scheduled,
        blocked=blocked,
        dead=dead,
        oldest_enqueued_at=oldest_enqueued_at,
        total_enqueued=enqueued,
        total_completed=completed,
        total_failed=failed,
    )
