"""The producer: turns checked jobs into writes, and keeps trying until the time is up.

Keyed jobs go to their key's partition; the unkeyed of one call go together to the partition with the fewest jobs. A
call is one transaction. When an answer is lost the call is looked for before it is repeated: a job is never written
twice, and never dropped in silence.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.client.pending import PendingJob
from penstock.errors import InvalidJob, PartitionUnavailable, QueueFull, RequestTimeout
from penstock.model.limits import JOBS_A_CALL
from penstock.routing.key_hash import partition_of
from penstock.routing.placement import Placement
from penstock.storage import catalogue
from penstock.storage.catalogue import QueueEntry
from penstock.storage.database import Connection, ConnectionLost, Database, is_lost
from penstock.storage.enqueue import (
    NewJob,
    Receipt,
    Span,
    drive,
    drive_async,
    is_few,
    look_for,
    newest_id,
    write_few,
    write_spans,
)
from penstock.storage.handler_transaction import async_connection_beneath, connection_beneath
from penstock.storage.sweep import unblock

__all__ = ["Producer"]

DEPTH_LIFETIME_SECONDS = 0.1


@dataclass(slots=True)
class Call:
    """One call, sorted: spans to write, the jobs in the order given, and the queues with a max_length by partition."""

    spans: list[Span]
    jobs: list[NewJob]
    limited: dict[int, QueueEntry]
    is_keyed: bool

    @property
    def ids(self) -> list[int]:
        return [job.id for job in self.jobs]

    @property
    def children(self) -> list[int]:
        return [job.id for job in self.jobs if job.parents]


class Producer:
    """One per app; used by any number of threads."""

    def __init__(self, database: Database, find_queue: Callable[[str], QueueEntry]) -> None:
        self._database = database
        self._find_queue = find_queue
        self._placements: dict[tuple[str, int], Placement] = {}
        self._lock = threading.Lock()
        self._newest_id: int | None = None

    def enqueue(self, jobs: Sequence[PendingJob], connection: Any = None, timeout: float | None = None) -> list[int]:
        """Write a call; the jobs' ids, in order."""
        if not jobs:
            return []
        call = self._plan(jobs)
        self._check_lengths(call)
        if connection is None:
            self._write(call, self._database.request_timeout if timeout is None else timeout)
        else:
            self._send(connection_beneath(connection), call, None)
        return call.ids

    async def enqueue_in_async(self, jobs: Sequence[PendingJob], connection: Any) -> list[int]:
        """Write a call in the transaction of an asynchronous connection."""
        if not jobs:
            return []
        beneath = await async_connection_beneath(connection)
        call = await asyncio.to_thread(self._plan, jobs)
        await asyncio.to_thread(self._check_lengths, call)
        if is_few(call.spans):
            await drive_async(beneath, write_few(call.spans[0]))
        else:
            async with beneath.transaction():
                await drive_async(beneath, write_spans(call.spans))
        return call.ids

    def _plan(self, jobs: Sequence[PendingJob]) -> Call:
        """Sort a call into spans, stably, and choose its partitions."""
        if len(jobs) > JOBS_A_CALL:
            raise InvalidJob("jobs", f"{len(jobs)} jobs in one call are too many; give at most {JOBS_A_CALL} at a time")
        unkeyed = Counter(job.task.queue for job in jobs if job.key is None)
        entries = {name: self._find_queue(name) for name in {job.task.queue for job in jobs}}
        homes = {name: self._place(entries[name], count) for name, count in unkeyed.items()}
        spans: dict[Any, Span] = {}
        call = Call([], [], {}, is_keyed=unkeyed.total() < len(jobs))
        earlier: dict[int, NewJob] = {}
        for job in jobs:
            task, options = job.task, job.options
            entry = entries[task.queue]
            number = homes[task.queue] if job.key is None else partition_of(job.key, len(entry.partition_ids))
            priority = task.priority if options.priority is None else options.priority
            signature = (entry.id, number, priority, task.name, options.run_at, options.delay)
            span = spans.get(signature)
            if span is None:
                partition = entry.partition_ids[number]
                span = Span(entry.id, partition, priority, task.name, options.run_at, options.delay)
                spans[signature] = span
                if entry.max_length is not None:
                    call.limited[partition] = entry
            new = NewJob(job.args_json, job.key, options.attributes, options.idempotency_key)
            if options.after:
                new.parents = [p if isinstance(p, int) else _earlier(earlier, p) for p in options.after]
                new.runs_on_failure = options.runs_on_failure
            earlier[id(job)] = new
            span.jobs.append(new)
            call.jobs.append(new)
        call.spans = list(spans.values())
        return call

    def _place(self, entry: QueueEntry, count: int) -> int:
        """The partition for a queue's unkeyed jobs of one call."""
        partitions = entry.partition_ids
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
            count = sum(len(span.jobs) for span in call.spans if span.partition_id == partition)
            waiting = self._database.run(partial(catalogue.waiting_in, partition=partition))
            if entry.max_length is not None and waiting + count > entry.max_length:
                raise QueueFull(entry.name, entry.max_length)

    def _write(self, call: Call, timeout: float) -> None:
        clock = self._database.clock
        deadline = clock.monotonic() + timeout
        pause = 0.02
        while True:
            receipt = Receipt()
            try:
                with self._database.connection(max(deadline - clock.monotonic(), 0.05)) as connection:
                    self._prepare_receipt(connection, call, receipt)
                    self._send(connection, call, receipt)
                    if call.children:
                        unblock(connection, call.children)
                return
            except ConnectionLost as error:
                if not is_lost(error):
                    raise
                if receipt.can_be_found and self._was_written(call, receipt, deadline, timeout):
                    return
                if clock.monotonic() + pause >= deadline:
                    raise self._refusal(call, timeout, error) from error
            clock.sleep(pause)
            pause = min(pause * 2, 0.5)

    def _prepare_receipt(self, connection: Connection, call: Call, receipt: Receipt) -> None:
        receipt.backend_pid = connection.info.backend_pid
        if is_few(call.spans):
            if self._newest_id is None:
                self._newest_id = newest_id(connection)
            receipt.after = self._newest_id - 1024
            receipt.token = self._database.clock.random_token()

    def _send(self, connection: Connection, call: Call, receipt: Receipt | None) -> None:
        if is_few(call.spans):
            drive(connection, write_few(call.spans[0], receipt))
            if receipt is not None:
                self._newest_id = call.jobs[-1].id
        else:
            with connection.transaction():
                drive(connection, write_spans(call.spans, receipt))

    def _was_written(self, call: Call, receipt: Receipt, deadline: float, timeout: float) -> bool:
        try:
            return look_for(self._database, receipt, call.spans, deadline)
        except PartitionUnavailable as error:
            raise RequestTimeout(
                f"the answer to an enqueue of {len(call.jobs)} jobs was lost, and the database at "
                f"{self._database.address} did not come back within {timeout:g} s to say whether they were written; "
                "repeat the call only with idempotency keys, or look with app.jobs first",
                outcome="unknown",
            ) from error

    def _refusal(self, call: Call, timeout: float, error: BaseException) -> Exception:
        if call.is_keyed:
            return self._database.unavailable(error)
        return RequestTimeout(
            f"{len(call.jobs)} jobs could not be written within {timeout:g} s: the database at "
            f"{self._database.address} does not answer; nothing was written, call again when it does",
            outcome="not written",
        )


def _earlier(earlier: dict[int, NewJob], parent: PendingJob) -> NewJob:
    found = earlier.get(id(parent))
    if found is None:
        raise InvalidJob("after", "a job(...) given as parent must come earlier in the same call")
    return found
