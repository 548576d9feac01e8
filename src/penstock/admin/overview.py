"""The whole system at one look: what each database says of it, put together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from penstock.admin.answers import unavailable
from penstock.model.overview import Overview, QueueOverview, UnservedTask
from penstock.shards.databases import Databases
from penstock.storage import Database
from penstock.storage.inspect.system_figures import PartitionFigures, QueueFigures, SystemFigures, read_system_figures

__all__ = ["overview"]


def overview(databases: Databases) -> Overview:
    """What the shards that answer say of the whole; an error where none does."""

    def read(database: Database) -> SystemFigures:
        return databases.ask(database, read_system_figures, writes=False)

    answers = databases.each_database(read)
    if not answers.given and answers.missing:
        raise answers.missing[min(answers.missing)]
    return _put_together(answers.given, unavailable(answers))


def _put_together(told: Mapping[int, SystemFigures], missing: Sequence[str]) -> Overview:
    figures = list(told.values())
    here: defaultdict[str, list[QueueFigures]] = defaultdict(list)
    parts: defaultdict[str, list[PartitionFigures]] = defaultdict(list)
    waited: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for each in figures:
        for queue in each.queues:
            here[queue.queue].append(queue)
        for part in each.partitions:
            parts[part.queue].append(part)
        for task in each.unserved:
            known = waited[task.queue]
            known[task.task] = max(known.get(task.task, 0.0), task.waited_seconds)
    # A worker has a row on each shard; what limits a queue is the same everywhere.
    return Overview(
        queues=[_queue(name, here[name], parts[name], waited[name]) for name in sorted(here)],
        workers=max((each.workers_alive for each in figures), default=0),
        silent_workers=max((each.workers_silent for each in figures), default=0),
        slots=max((each.concurrency for each in figures), default=0),
        overdue_seconds=max((each.overdue_seconds for each in figures), default=0.0),
        failing_duties=sum(each.failing_duties for each in figures),
        unavailable=list(missing),
        read_only=[str(number) for number, each in told.items() if not each.takes_writes],
    )


def _queue(
    name: str, here: Sequence[QueueFigures], parts: Sequence[PartitionFigures], waited: Mapping[str, float]
) -> QueueOverview:
    return QueueOverview(
        queue=name,
        paused=any(each.is_paused for each in here),
        partitions=len({part.partition for part in parts}),
        waiting=sum(part.waiting for part in parts),
        running=sum(part.running for part in parts),
        limit=_limit(parts),
        scheduled=sum(part.scheduled for part in parts),
        blocked=sum(part.blocked for part in parts),
        dead=sum(part.dead for part in parts),
        halted_keys=sum(each.halted_keys for each in here),
        halted_seconds=max((each.halted_seconds for each in here), default=0.0),
        oldest_wait_seconds=max((part.oldest_wait_seconds for part in parts), default=0.0),
        workers=max((each.workers for each in here), default=0),
        unserved=[UnservedTask(task=task, waited_seconds=seconds) for task, seconds in sorted(waited.items())],
        total_enqueued=sum(part.enqueued for part in parts),
        total_completed=sum(part.completed for part in parts),
        total_failed=sum(part.failed for part in parts),
        total_cancelled=sum(part.cancelled for part in parts),
        total_discarded=sum(part.discarded for part in parts),
        total_expired=sum(part.expired for part in parts),
    )


def _limit(parts: Sequence[PartitionFigures]) -> int | None:
    """How many may run in all of them; None where one of them has no limit."""
    limits = [part.running_limit for part in parts]
    return None if not limits or None in limits else sum(limit for limit in limits if limit is not None)
