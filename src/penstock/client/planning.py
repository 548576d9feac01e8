"""Which jobs of a call are written on which database, and into which partitions.

A job with a key goes to its key's partition. One with an idempotency key goes to the shard that remembers it, unless
the key is only unique within its ordering key and so lives with that. All others are free: those of one queue go
together to the partition with the fewest jobs, on a shard that the call writes to anyway if there is one, so that as
much of the call as can be is one transaction. What goes to one shard is one planned write.

Writes are carried out side by side, except where a job waits for another one of the same call on another shard: then
that one's write comes first. Writes that would wait for each other are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any

from penstock.client.call import Call, PlannedWrite, Waves, order_in_waves
from penstock.client.grouping import group_jobs, group_rows
from penstock.client.options import Options
from penstock.client.pending import PendingJob, PendingRows
from penstock.client.refusals import key_elsewhere, moving_queue, no_partition_there
from penstock.clock import system
from penstock.routing.router import route, route_keys
from penstock.shards.callers import Caller
from penstock.shards.depths import Depths
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.enqueue.job_group import Destination, JobGroup

__all__ = ["Planner"]


class Planner:
    """One per producer; used by any number of threads."""

    def __init__(self, find_queue: Callable[[str], QueueEntry], depths: Depths) -> None:
        self._find_queue = find_queue
        self._depths = depths

    def plan(self, call: Call, caller: Caller | None = None) -> Waves:
        """The writes of a call; of one through a caller's connection, all on the database that it leads to."""
        if isinstance(call.pending, PendingRows):
            return self._plan_rows(call.pending, caller)
        return self._plan_jobs(call.pending, range(len(call.pending)), (), caller)

    def plan_again(self, call: Call, write: PlannedWrite, avoid: Collection[int]) -> Waves:
        """The jobs of a write that was not carried out, planned anew: without these shards where there are others."""
        return self._plan_jobs(call.jobs, write.indexes, avoid, None)

    def _plan_jobs(
        self, jobs: Sequence[PendingJob], indexes: Sequence[int], avoid: Collection[int], caller: Caller | None
    ) -> Waves:
        entries = {name: self._find_queue(name) for name in {jobs[index].task.queue for index in indexes}}
        numbers = self._route(jobs, indexes, entries, avoid, caller)
        alike: dict[Any, list[int]] = {}
        now = system.now()
        for index in indexes:
            job = jobs[index]
            task, options = job.task, job.options
            entry = entries[task.queue]
            priority = task.priority if options.priority is None else options.priority
            name = "" if entry.is_owned else task.name
            # With an owner a `run_at` in the past is dropped: the job is in one range with those of the call that have
            # none, and stands among them in the call's order.
            is_due = entry.is_owned and options.run_at is not None and options.run_at <= now
            run_at = None if is_due else options.run_at
            signature = (task.queue, numbers[index], priority, name, run_at, options.delay)
            alike.setdefault(signature, []).append(index)
        writes: dict[int, PlannedWrite] = {}
        index_of = {id(job): index for index, job in enumerate(jobs)}
        for (queue, number, priority, name, run_at, delay), together in alike.items():
            entry = entries[queue]
            epoch = entry.epoch if entry.is_owned else None
            destination = Destination(entry.id, entry.partition_ids[number], priority, name, run_at, delay, epoch)
            _add(writes, entry, number, group_jobs(destination, together, jobs, entry, index_of))
        return [list(writes.values())] if len(writes) == 1 else order_in_waves(list(writes.values()))

    def _plan_rows(self, rows: PendingRows, caller: Caller | None) -> Waves:
        keys = rows.keys
        entry = self._find_queue(rows.task.queue)
        count = entry.partition_count
        if keys is None or count == 1:
            number = 0
            if count > 1 or caller is not None:
                numbers = range(count) if caller is None else _partitions_of(entry, caller)
                number = self._depths.place(
                    entry, numbers, len(rows.args), is_ready=is_ready(rows.options, system.now())
                )
            write = PlannedWrite(entry.partition_shards[number])
            write.add(entry, group_rows(entry, number, rows, range(len(rows.args))))
            return [[write]]
        alike: dict[int, list[int]] = {}
        free = [index for index, key in enumerate(keys) if key is None]
        bound = [index for index, key in enumerate(keys) if key is not None] if free else range(len(keys))
        for index, number in zip(
            bound, route_keys(entry.key_map, [key for key in keys if key is not None]), strict=True
        ):
            alike.setdefault(number, []).append(index)
        if free:
            taken = {entry.partition_shards[n] for n in alike}
            ready = is_ready(rows.options, system.now())
            number = self._place_free(entry, len(free), taken, (), caller, is_ready=ready)
            alike[number] = sorted([*alike.get(number, ()), *free])
        writes: dict[int, PlannedWrite] = {}
        for number, indexes in alike.items():
            shard = entry.partition_shards[number]
            if caller is not None and shard != caller.shard:
                raise key_elsewhere(entry, number, shard, None, caller)
            _add(writes, entry, number, group_rows(entry, number, rows, indexes))
        return [list(writes.values())]

    def _route(
        self,
        jobs: Sequence[PendingJob],
        indexes: Sequence[int],
        entries: dict[str, QueueEntry],
        avoid: Collection[int],
        caller: Caller | None,
    ) -> dict[int, int]:
        """The number of each job's partition, by index."""
        maps = {name: entry.key_map for name, entry in entries.items()}
        numbers: dict[int, int] = {}
        homed: dict[tuple[str, int], list[int]] = {}
        free: dict[str, list[int]] = {}
        taken: set[int] = set()
        for index in indexes:
            job = jobs[index]
            entry, idempotency_key = entries[job.task.queue], job.options.idempotency_key
            number, shard = route(maps[job.task.queue], job.key, idempotency_key)
            if shard is None:
                free.setdefault(entry.name, []).append(index)
                continue
            if caller is not None and shard != caller.shard:
                raise key_elsewhere(entry, number, shard, idempotency_key, caller)
            taken.add(shard)
            if number is not None:
                numbers[index] = number
            elif job.key is None:
                homed.setdefault((entry.name, shard), []).append(index)
            else:
                raise moving_queue(entry, shard)
        chosen: dict[tuple[str, int], int] = {}
        now = system.now()

        def has_ready(alike: Sequence[int]) -> bool:
            return any(is_ready(jobs[index].options, now) for index in alike)

        # The queue whose partitions are on the fewest shards chooses first; the others follow it where they can.
        for name, alike in sorted(free.items(), key=lambda each: len(set(_current_shards(entries[each[0]])))):
            entry = entries[name]
            number = self._place_free(entry, len(alike), taken, avoid, caller, is_ready=has_ready(alike))
            taken.add(entry.partition_shards[number])
            chosen[name, entry.partition_shards[number]] = number
            numbers.update(dict.fromkeys(alike, number))
        for (name, home), alike in homed.items():
            entry = entries[name]
            number = chosen.get((name, home), -1)
            if number < 0:
                number = self._depths.place(entry, _partitions_at(entry, home), len(alike), is_ready=has_ready(alike))
            numbers.update(dict.fromkeys(alike, number))
        return numbers

    def _place_free(
        self,
        entry: QueueEntry,
        jobs: int,
        taken: set[int],
        avoid: Collection[int],
        caller: Caller | None,
        *,
        is_ready: bool,
    ) -> int:
        """The number of the partition for the free jobs of a queue; to the shards in `taken` the call writes anyway."""
        numbers: Sequence[int] = range(entry.partition_count) if caller is None else _partitions_of(entry, caller)
        if caller is None and len(numbers) > 1:
            good = [shard for shard in taken if shard not in avoid and self._depths.is_writable(shard)]
            numbers = [number for number in numbers if entry.partition_shards[number] in good] or numbers
        return self._depths.place(entry, numbers, jobs, avoid, is_ready=is_ready)


def is_ready(options: Options, now: datetime) -> bool:
    """Whether jobs with these options may start at once, as far as it is up to their time and their parents."""
    is_due = not options.delay and (options.run_at is None or options.run_at <= now)
    return is_due and not options.after


def _current_shards(entry: QueueEntry) -> tuple[int, ...]:
    return entry.partition_shards[: entry.partition_count]


def _partitions_at(entry: QueueEntry, shard: int) -> list[int]:
    """The partitions of a queue on the shard that remembers its idempotency keys, in order."""
    numbers = [number for number, each in enumerate(_current_shards(entry)) if each == shard]
    if not numbers:
        raise moving_queue(entry, shard)
    return numbers


def _partitions_of(entry: QueueEntry, caller: Caller) -> list[int]:
    """The partitions of a queue on the shard that a caller's connection leads to, in order."""
    numbers = [number for number, each in enumerate(_current_shards(entry)) if each == caller.shard]
    if not numbers:
        raise no_partition_there(entry, sorted(set(_current_shards(entry))), caller)
    return numbers


def _add(writes: dict[int, PlannedWrite], entry: QueueEntry, number: int, group: JobGroup) -> None:
    """Add a group of one partition to the write on the partition's shard."""
    shard = entry.partition_shards[number]
    write = writes.get(shard) or writes.setdefault(shard, PlannedWrite(shard))
    write.add(entry, group)
