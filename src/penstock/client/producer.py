"""The producer: turns checked jobs into writes, and keeps trying until the time is up.

Keyed jobs go to their key's partition; the unkeyed of one call go together to the partition with the fewest jobs. A
call is one transaction. When an answer is lost the call is looked for before it is repeated: a job is never written
twice, and never dropped in silence.

Where a queue has an owner its jobs are written only by the queue's own map of keys to partitions. A call planned by an
older one is planned again by the new one, in the same transaction, and nobody notices.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.client.options import Options
from penstock.client.pending import PendingJob
from penstock.clock import system
from penstock.errors import InvalidJob, PartitionUnavailable, QueueFull, RequestTimeout
from penstock.model.limits import JOBS_A_CALL
from penstock.routing.key_hash import partition_of
from penstock.routing.placement import Placement
from penstock.storage import catalogue
from penstock.storage.catalogue import QueueEntry
from penstock.storage.database import Connection, ConnectionLost, Database, is_lost
from penstock.storage.enqueue import (
    Child,
    Receipt,
    Span,
    drive,
    drive_async,
    drive_transaction,
    is_few,
    look_for,
    newest_id,
    write_few,
    write_spans,
)
from penstock.storage.handler_transaction import (
    async_connection_beneath,
    connection_beneath,
    part_of_transaction,
    part_of_transaction_async,
)
from penstock.storage.sweep import unblock
from penstock.task.definition import TaskDefinition

__all__ = ["Producer"]

DEPTH_LIFETIME_SECONDS = 0.1


@dataclass(slots=True)
class Call:
    """One call, sorted: spans to write, the ids to be, and the queues with a max_length by partition."""

    ids: list[int]
    spans: list[Span]
    limited: dict[int, QueueEntry]
    is_keyed: bool = False
    has_children: bool = False
    # Whether one statement writes it.
    is_few: bool = False
    # The queues that have an owner.
    owned: set[str] = field(default_factory=set)

    @property
    def children(self) -> list[int]:
        return [self.ids[span.places[index]] for span in self.spans for index in span.children or ()]


class Producer:
    """One per app; used by any number of threads."""

    def __init__(
        self,
        database: Database,
        find_queue: Callable[[str], QueueEntry],
        find_queue_now: Callable[[str], QueueEntry],
    ) -> None:
        self._database = database
        self._find_queue = find_queue
        self._find_queue_now = find_queue_now
        self._placements: dict[tuple[str, int], Placement] = {}
        self._lock = threading.Lock()
        self._newest_id: int | None = None

    def enqueue(self, jobs: Sequence[PendingJob], connection: Any = None, timeout: float | None = None) -> list[int]:
        """Write a call; the jobs' ids, in order."""
        if not jobs:
            return []
        return self._enqueue(partial(self._plan, jobs), connection, timeout)

    def enqueue_rows(
        self, task: TaskDefinition, options: Options, args: list[bytes], keys: list[bytes | None] | None
    ) -> list[int]:
        """Write many jobs of one task; their ids, in order."""
        if not args:
            return []
        plan = partial(self._plan_rows, task, options, args, keys)
        return self._enqueue(plan, options.connection, options.request_timeout)

    def _enqueue(self, plan: Callable[[], Call], connection: Any, timeout: float | None) -> list[int]:
        while True:
            call = plan()
            call.is_few = is_few(call.spans)
            if call.limited:
                self._check_lengths(call)
            if connection is None:
                is_written = self._write(call, self._database.request_timeout if timeout is None else timeout)
            else:
                is_written = self._send(connection_beneath(connection), call, None)
            if is_written:
                return call.ids
            self._learn_maps(call)

    async def enqueue_in_async(self, jobs: Sequence[PendingJob], connection: Any) -> list[int]:
        """Write a call in the transaction of an asynchronous connection."""
        if not jobs:
            return []
        beneath = await async_connection_beneath(connection)
        while True:
            call = await asyncio.to_thread(self._plan, jobs)
            await asyncio.to_thread(self._check_lengths, call)
            if is_few(call.spans):
                is_written = await drive_async(beneath, write_few(call.spans[0], call.ids))
            else:
                async with part_of_transaction_async(beneath):
                    is_written = await drive_async(beneath, write_spans(call.spans, call.ids))
            if is_written:
                return call.ids
            await asyncio.to_thread(self._learn_maps, call)

    def _learn_maps(self, call: Call) -> None:
        """A queue of the call has another map by now: read them anew."""
        for name in call.owned:
            self._find_queue_now(name)

    def _plan(self, jobs: Sequence[PendingJob]) -> Call:
        """Sort a call into spans, stably, and choose its partitions."""
        _check_size(len(jobs))
        unkeyed = Counter(job.task.queue for job in jobs if job.key is None)
        entries = {name: self._find_queue(name) for name in {job.task.queue for job in jobs}}
        homes = {name: self._place(entries[name], count) for name, count in unkeyed.items()}
        groups: dict[Any, list[int]] = {}
        now = system.now()
        for place, job in enumerate(jobs):
            task, options = job.task, job.options
            entry = entries[task.queue]
            number = homes[task.queue] if job.key is None else partition_of(job.key, entry.partition_count)
            priority = task.priority if options.priority is None else options.priority
            name = "" if entry.is_owned else task.name
            # A time that has come is no time: such jobs stand among those of the call that have none.
            is_due = entry.is_owned and options.run_at is not None and options.run_at <= now
            run_at = None if is_due else options.run_at
            signature = (task.queue, number, priority, name, run_at, options.delay)
            groups.setdefault(signature, []).append(place)
        call = Call([0] * len(jobs), [], {}, is_keyed=unkeyed.total() < len(jobs))
        earlier = {id(job): place for place, job in enumerate(jobs)}
        for (queue, number, priority, name, run_at, delay), places in groups.items():
            entry = entries[queue]
            partition = entry.partition_ids[number]
            span = Span(entry.id, partition, priority, name, run_at, delay, places=places)
            _fill(span, [jobs[place] for place in places], earlier)
            if entry.is_owned:
                span.epoch, span.tasks = entry.epoch, [jobs[place].task.name for place in places]
                call.owned.add(queue)
            call.has_children = call.has_children or span.children is not None
            call.spans.append(span)
            if entry.max_length is not None:
                call.limited[partition] = entry
        return call

    def _plan_rows(
        self, task: TaskDefinition, options: Options, args: list[bytes], keys: list[bytes | None] | None
    ) -> Call:
        """The same for many rows of one task with the same options, without an object a row."""
        _check_size(len(args))
        entry = self._find_queue(task.queue)
        priority = task.priority if options.priority is None else options.priority
        groups: dict[int, Sequence[int]]
        count = entry.partition_count
        if keys is None:
            groups = {self._place(entry, len(args)): range(len(args))}
        elif count == 1:
            groups = {0: range(len(args))}
        else:
            by_partition: dict[int, list[int]] = {}
            for place, key in enumerate(keys):
                number = self._place(entry, 1) if key is None else partition_of(key, count)
                by_partition.setdefault(number, []).append(place)
            groups = dict(by_partition)
        call = Call([0] * len(args), [], {}, is_keyed=keys is not None, has_children=bool(options.after))
        if entry.is_owned:
            call.owned.add(task.queue)
        for number, places in groups.items():
            is_all = len(places) == len(args)
            partition = entry.partition_ids[number]
            call.spans.append(
                Span(
                    entry.id,
                    partition,
                    priority,
                    "" if entry.is_owned else task.name,
                    options.run_at,
                    options.delay,
                    args if is_all else [args[place] for place in places],
                    places,
                    keys if is_all or keys is None else [keys[place] for place in places],
                    [options.attributes] * len(places) if options.attributes else None,
                    None,
                    {i: Child(_parents(options, {}), options.runs_on_failure) for i in range(len(places))}
                    if options.after
                    else None,
                    entry.epoch if entry.is_owned else None,
                    [task.name] * len(places) if entry.is_owned else None,
                )
            )
            if entry.max_length is not None:
                call.limited[partition] = entry
        return call

    def _place(self, entry: QueueEntry, count: int) -> int:
        """The partition for a queue's unkeyed jobs of one call."""
        partitions = entry.partition_ids[: entry.partition_count]
        if len(partitions) == 1:
            return 0
        clock = self._database.clock
        with self._lock:
            placement = self._placements.setdefault(
                (entry.name, len(partitions)), Placement(len(partitions), DEPTH_LIFETIME_SECONDS)
            )
            depths = None
            if placement.is_stale(clock.monotonic()):
                depths = self._database.run(lambda connection: catalogue.open_depths(connection, partitions))
                placement.learn(depths, clock.monotonic())
            return placement.place(count)

    def _check_lengths(self, call: Call) -> None:
        """Refuse the call where a partition would grow longer than its queue allows."""
        for partition, entry in call.limited.items():
            count = sum(len(span.args) for span in call.spans if span.partition_id == partition)
            waiting = self._database.run(partial(catalogue.waiting_in, partition=partition))
            if entry.max_length is not None and waiting + count > entry.max_length:
                raise QueueFull(entry.name, entry.max_length)

    def _write(self, call: Call, timeout: float) -> bool:
        """Write a call in a transaction of its own; False where its map is not the queue's any more."""
        clock = self._database.clock
        deadline = clock.monotonic() + timeout
        pause = 0.02
        remaining = timeout
        while True:
            receipt = Receipt()
            try:
                with self._database.connection(remaining) as connection:
                    self._prepare_receipt(connection, call, receipt)
                    is_written = self._send(connection, call, receipt)
                    if is_written and call.has_children:
                        unblock(connection, call.children)
                return is_written
            except ConnectionLost as error:
                if not is_lost(error):
                    raise
                if receipt.can_be_found and self._was_written(call, receipt, deadline, timeout):
                    return True
                if clock.monotonic() + pause >= deadline:
                    raise self._refusal(call, timeout, error) from error
            clock.sleep(pause)
            pause = min(pause * 2, 0.5)
            remaining = max(deadline - clock.monotonic(), 0.05)

    def _prepare_receipt(self, connection: Connection, call: Call, receipt: Receipt) -> None:
        receipt.backend_pid = connection.info.backend_pid
        if call.is_few:
            if self._newest_id is None:
                self._newest_id = newest_id(connection)
            receipt.after = self._newest_id - 1024
            receipt.token = self._database.clock.random_token()

    def _send(self, connection: Connection, call: Call, receipt: Receipt | None) -> bool:
        if call.is_few:
            is_written = drive(connection, write_few(call.spans[0], call.ids, receipt))
            if receipt is not None and is_written:
                self._newest_id = call.ids[-1]
            return is_written
        if receipt is not None:
            return drive_transaction(connection, write_spans(call.spans, call.ids, receipt))
        with part_of_transaction(connection):
            return drive(connection, write_spans(call.spans, call.ids))

    def _was_written(self, call: Call, receipt: Receipt, deadline: float, timeout: float) -> bool:
        try:
            return look_for(self._database, receipt, call.spans, call.ids, deadline)
        except PartitionUnavailable as error:
            raise RequestTimeout(
                f"the answer to an enqueue of {len(call.ids)} jobs was lost, and the database at "
                f"{self._database.address} did not come back within {timeout:g} s to say whether they were written; "
                "repeat the call only with idempotency keys, or look with app.jobs first",
                outcome="unknown",
            ) from error

    def _refusal(self, call: Call, timeout: float, error: BaseException) -> Exception:
        if call.is_keyed:
            return self._database.unavailable(error)
        return RequestTimeout(
            f"{len(call.ids)} jobs could not be written within {timeout:g} s: the database at "
            f"{self._database.address} does not answer; nothing was written, call again when it does",
            outcome="not written",
        )


def _check_size(count: int) -> None:
    if count > JOBS_A_CALL:
        raise InvalidJob("jobs", f"{count} jobs in one call are too many; give at most {JOBS_A_CALL} at a time")


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
            raise InvalidJob("after", "a job(...) given as parent must come earlier in the same call")
        else:
            parents.append(-1 - found)
    return parents
