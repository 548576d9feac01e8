"""Which jobs of a call are written on which shard, and into which partitions.

A job with a key goes to its key's partition. One with an idempotency key goes to the shard that remembers it, unless
the key is only unique within its ordering key and so lives with that. All others are free: those of one queue go
together to the partition with the fewest jobs, on a shard that the call writes to anyway if there is one, so that as
much of the call as can be is one transaction. What goes to one shard is a part of the call.

Parts are written side by side, except where a job waits for another one of the same call on another shard: then that
one's part comes first. Parts that would wait for each other are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from penstock.client.options import Options
from penstock.client.pending import PendingJob
from penstock.clock import system
from penstock.deadline import Deadline
from penstock.errors import InvalidInput, PartitionUnavailable
from penstock.model.limits import JOBS_A_CALL
from penstock.routing.router import route, route_keys
from penstock.shards.callers import Caller
from penstock.shards.depths import Depths
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.enqueue.write import Child, Span, is_few
from penstock.task.definition import TaskDefinition

__all__ = ["Call", "Part", "Planner", "Rows", "Waves", "check_size"]


class Rows(NamedTuple):
    """Many jobs of one task with the same options, without an object a job."""

    task: TaskDefinition
    options: Options
    args: list[bytes]
    keys: list[bytes | None] | None


@dataclass(slots=True)
class Part:
    """What a call writes on one shard, in one transaction."""

    shard: int
    spans: list[Span] = field(default_factory=list)
    # The queues of its spans, by id; those that bound a partition's length, by partition.
    entries: dict[int, QueueEntry] = field(default_factory=dict)
    limited: dict[int, QueueEntry] = field(default_factory=dict)
    # Whether some of its jobs may be written on another shard as well, and whether some may not.
    is_free: bool = False
    is_bound: bool = False
    has_children: bool = False
    # Whether one statement writes it.
    is_few: bool = False
    # Whether the lengths of its partitions were looked at already.
    is_checked: bool = False

    @property
    def places(self) -> list[int]:
        """Where its jobs stand in the call, in order."""
        return sorted(place for span in self.spans for place in span.places)

    def children(self, ids: list[int]) -> list[int]:
        """The ids of those that wait for others."""
        return [ids[span.places[index]] for span in self.spans for index in span.children or ()]

    @property
    def partitions(self) -> list[str]:
        """The names of its partitions."""
        found = ((self.entries[span.queue_id], span.partition_id) for span in self.spans)
        names = (entry.partition_names[entry.partition_ids.index(partition)] for entry, partition in found)
        return list(dict.fromkeys(names))


@dataclass(slots=True)
class Call:
    """One call: its jobs, their ids to be, and what of it is written."""

    ids: list[int]
    jobs: Callable[[], Sequence[PendingJob]]
    deadline: Deadline
    done: list[Part] = field(default_factory=list)

    @property
    def written(self) -> list[int | None]:
        """The ids of what is written, by place."""
        written: list[int | None] = [None] * len(self.ids)
        for part in self.done:
            for place in part.places:
                written[place] = self.ids[place]
        return written


Waves = list[list[Part]]


class Planner:
    """One per producer; used by any number of threads."""

    def __init__(self, find_queue: Callable[[str], QueueEntry], depths: Depths) -> None:
        self._find_queue = find_queue
        self._depths = depths

    def plan(
        self,
        jobs: Sequence[PendingJob],
        places: Sequence[int] | None = None,
        avoid: Collection[int] = (),
        caller: Caller | None = None,
    ) -> Waves:
        """The parts of a call, or of the jobs at some of its places; one wave is written before the next."""
        places = range(len(jobs)) if places is None else places
        entries = {name: self._find_queue(name) for name in {jobs[place].task.queue for place in places}}
        numbers = self._route(jobs, places, entries, avoid, caller)
        groups: dict[Any, list[int]] = {}
        now = system.now()
        for place in places:
            job = jobs[place]
            task, options = job.task, job.options
            entry = entries[task.queue]
            priority = task.priority if options.priority is None else options.priority
            name = "" if entry.is_owned else task.name
            # A time that has come is no time: such jobs stand among those of the call that have none.
            is_due = entry.is_owned and options.run_at is not None and options.run_at <= now
            run_at = None if is_due else options.run_at
            signature = (task.queue, numbers[place], priority, name, run_at, options.delay)
            groups.setdefault(signature, []).append(place)
        parts: dict[int, Part] = {}
        earlier = {id(job): place for place, job in enumerate(jobs)}
        for (queue, number, priority, name, run_at, delay), at in groups.items():
            entry = entries[queue]
            span = Span(entry.id, entry.partition_ids[number], priority, name, run_at, delay, places=at)
            of_span = [jobs[place] for place in at]
            _fill(span, of_span, earlier)
            if entry.is_owned:
                span.epoch, span.tasks = entry.epoch, [job.task.name for job in of_span]
            elif span.idempotency_keys:
                span.held = entry.epoch
            shard = entry.partition_shards[number]
            part = parts.get(shard) or parts.setdefault(shard, Part(shard))
            _add(part, entry, span)
            part.has_children = part.has_children or span.children is not None
            part.is_bound = part.is_bound or not all(_is_free(job) for job in of_span)
            part.is_free = part.is_free or any(_is_free(job) for job in of_span)
        return [list(parts.values())] if len(parts) == 1 else _in_waves(list(parts.values()))

    def plan_rows(self, rows: Rows, caller: Caller | None = None) -> Waves:
        """The same for many rows of one task."""
        keys = rows.keys
        entry = self._find_queue(rows.task.queue)
        count = entry.partition_count
        if keys is None or count == 1:
            number = 0
            if count > 1 or caller is not None:
                numbers = range(count) if caller is None else _of(entry, caller)
                number = self._depths.place(
                    entry, numbers, len(rows.args), is_ready=is_ready(rows.options, system.now())
                )
            part = Part(entry.partition_shards[number])
            _add_rows(part, entry, number, rows, range(len(rows.args)))
            return [[part]]
        groups: dict[int, list[int]] = {}
        free = [place for place, key in enumerate(keys) if key is None]
        bound = [place for place, key in enumerate(keys) if key is not None] if free else range(len(keys))
        for place, number in zip(
            bound, route_keys(entry.key_map, [key for key in keys if key is not None]), strict=True
        ):
            groups.setdefault(number, []).append(place)
        if free:
            taken = {entry.partition_shards[n] for n in groups}
            ready = is_ready(rows.options, system.now())
            number = self._place_free(entry, len(free), taken, (), caller, is_ready=ready)
            groups[number] = sorted([*groups.get(number, ()), *free])
        parts: dict[int, Part] = {}
        for number, places in groups.items():
            shard = entry.partition_shards[number]
            if caller is not None and shard != caller.shard:
                raise _lives_elsewhere(entry, number, shard, None, caller)
            _add_rows(parts.get(shard) or parts.setdefault(shard, Part(shard)), entry, number, rows, places)
        return [list(parts.values())]

    def _route(
        self,
        jobs: Sequence[PendingJob],
        places: Sequence[int],
        entries: dict[str, QueueEntry],
        avoid: Collection[int],
        caller: Caller | None,
    ) -> dict[int, int]:
        """The partition of each job, by place."""
        maps = {name: entry.key_map for name, entry in entries.items()}
        numbers: dict[int, int] = {}
        homed: dict[tuple[str, int], list[int]] = {}
        free: dict[str, list[int]] = {}
        taken: set[int] = set()
        for place in places:
            job = jobs[place]
            entry, idempotency_key = entries[job.task.queue], job.options.idempotency_key
            number, shard = route(maps[job.task.queue], job.key, idempotency_key)
            if shard is None:
                free.setdefault(entry.name, []).append(place)
                continue
            if caller is not None and shard != caller.shard:
                raise _lives_elsewhere(entry, number, shard, idempotency_key, caller)
            taken.add(shard)
            if number is not None:
                numbers[place] = number
            elif job.key is None:
                homed.setdefault((entry.name, shard), []).append(place)
            else:
                raise _is_moving(entry, shard)
        chosen: dict[tuple[str, int], int] = {}
        now = system.now()

        def has_ready(alike: Sequence[int]) -> bool:
            return any(is_ready(jobs[place].options, now) for place in alike)

        # First what has the least choice; the rest follows it where it can.
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
                number = self._depths.place(entry, _on(entry, home), len(alike), is_ready=has_ready(alike))
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
        """The partition for the free jobs of a queue."""
        numbers: Sequence[int] = range(entry.partition_count) if caller is None else _of(entry, caller)
        if caller is None and len(numbers) > 1:
            good = [shard for shard in taken if shard not in avoid and self._depths.is_writable(shard)]
            numbers = [number for number in numbers if entry.partition_shards[number] in good] or numbers
        return self._depths.place(entry, numbers, jobs, avoid, is_ready=is_ready)


def check_size(count: int) -> None:
    """Refuse a call of too many jobs."""
    if count > JOBS_A_CALL:
        raise InvalidInput("jobs", f"{count} jobs in one call are too many; give at most {JOBS_A_CALL} at a time")


def is_ready(options: Options, now: datetime) -> bool:
    """Whether jobs with these options may start at once, as far as it is up to their time and their parents."""
    is_due = not options.delay and (options.run_at is None or options.run_at <= now)
    return is_due and not options.after


def _is_free(job: PendingJob) -> bool:
    return job.key is None and job.options.idempotency_key is None


def _current_shards(entry: QueueEntry) -> tuple[int, ...]:
    return entry.partition_shards[: entry.partition_count]


def _on(entry: QueueEntry, shard: int) -> list[int]:
    """The partitions of a queue on one shard, in order."""
    numbers = [number for number, each in enumerate(_current_shards(entry)) if each == shard]
    if not numbers:
        raise _is_moving(entry, shard)
    return numbers


def _is_moving(entry: QueueEntry, shard: int) -> PartitionUnavailable:
    return PartitionUnavailable(
        f"queue {entry.name!r} has no partition on shard {shard}, which remembers its idempotency keys; it is "
        "being moved: call again in a moment",
        shard=shard,
    )


def _of(entry: QueueEntry, caller: Caller) -> list[int]:
    """The partitions of a queue on the shard of a connection."""
    numbers = [number for number, each in enumerate(_current_shards(entry)) if each == caller.shard]
    if not numbers:
        shards = ", ".join(str(shard) for shard in sorted(set(_current_shards(entry))))
        raise InvalidInput(
            "connection",
            f"it leads to shard {caller.shard} ({caller.address}), and queue {entry.name!r} has no partition there: "
            f"use a connection to shard {shards}, or enqueue without connection=",
        )
    return numbers


def _lives_elsewhere(
    entry: QueueEntry, number: int | None, shard: int, idempotency_key: str | None, caller: Caller
) -> InvalidInput:
    """The error for a job that cannot be written through the caller's connection."""
    if idempotency_key is not None and (number is None or not entry.is_owned):
        return InvalidInput(
            "idempotency_key",
            f"{idempotency_key!r:.60} is remembered on shard {shard}, and the connection leads to shard {caller.shard} "
            f"({caller.address}): use a connection to shard {shard}, or enqueue without connection=",
        )
    name = "" if number is None else f" {entry.partition_names[number]!r}"
    return InvalidInput(
        "key",
        f"its partition{name} lives on shard {shard}, and the connection leads to "
        f"shard {caller.shard} ({caller.address}): use one to shard {shard}, or enqueue without connection=",
    )


def _add(part: Part, entry: QueueEntry, span: Span) -> None:
    part.spans.append(span)
    part.entries[entry.id] = entry
    if entry.rules.max_length is not None:
        part.limited[span.partition_id] = entry
    part.is_few = is_few(part.spans)


def _add_rows(part: Part, entry: QueueEntry, number: int, rows: Rows, places: Sequence[int]) -> None:
    """Add those of many rows that go to one partition."""
    task, options, args, keys = rows
    count = len(places)
    if count < len(args):
        args = [args[place] for place in places]
        keys = None if keys is None else [keys[place] for place in places]
    children = None
    if options.after:
        children = {index: Child(_parents(options, {}), options.runs_on_failure) for index in range(count)}
        part.has_children = True
    span = Span(
        entry.id,
        entry.partition_ids[number],
        task.priority if options.priority is None else options.priority,
        "" if entry.is_owned else task.name,
        options.run_at,
        options.delay,
        args,
        places,
        keys,
        [options.attributes] * count if options.attributes else None,
        None,
        children,
        entry.epoch if entry.is_owned else None,
        [task.name] * count if entry.is_owned else None,
    )
    _add(part, entry, span)
    if keys is None or None in keys:
        part.is_free = True
    if keys is not None and (None not in keys or any(key is not None for key in keys)):
        part.is_bound = True


def _in_waves(parts: list[Part]) -> Waves:
    """The parts in an order in which each comes after those that hold parents of its jobs."""
    part_of = {place: part.shard for part in parts for span in part.spans for place in span.places}
    needs = {
        part.shard: {
            part_of[-1 - parent]
            for span in part.spans
            for child in (span.children or {}).values()
            for parent in child.parents
            if parent < 0 and part_of.get(-1 - parent, part.shard) != part.shard
        }
        for part in parts
    }
    waves: Waves = []
    ahead: set[int] = set()
    while len(ahead) < len(parts):
        wave = [part for part in parts if part.shard not in ahead and needs[part.shard] <= ahead]
        if not wave:
            shards = " and ".join(str(part.shard) for part in parts if part.shard not in ahead)
            raise InvalidInput(
                "after",
                f"jobs of this call on shards {shards} would have to be written before each other: make two calls, the "
                "parents in the first, and pass their ids",
            )
        waves.append(wave)
        ahead |= {part.shard for part in wave}
    return waves


def _fill(span: Span, jobs: Sequence[PendingJob], earlier: dict[int, int]) -> None:
    """Put the jobs of a span into its lists; what none of them has stays None."""
    span.args = [job.args_json for job in jobs]
    if any(job.key is not None for job in jobs):
        span.keys = [job.key for job in jobs]
    if any(job.options.attributes for job in jobs):
        span.attributes = [job.options.attributes for job in jobs]
    if any(job.options.idempotency_key is not None for job in jobs):
        span.idempotency_keys = [job.options.idempotency_key for job in jobs]
    children = {
        index: Child(_parents(job.options, earlier, span.places[index]), job.options.runs_on_failure)
        for index, job in enumerate(jobs)
        if job.options.after
    }
    span.children = children or None


def _parents(options: Options, earlier: dict[int, int], place: int = 0) -> list[int]:
    """The parents of a job: ids, and earlier jobs of the same call by their place."""
    parents = []
    for parent in options.after:
        if isinstance(parent, int):
            parents.append(parent)
        elif (found := earlier.get(id(parent))) is None or found >= place:
            raise InvalidInput("after", "a job(...) given as parent must come earlier in the same call")
        else:
            parents.append(-1 - found)
    return parents
