"""The producer: turns checked jobs into writes, and keeps trying until the time is up.

What a call writes on one database is one transaction; over several shards each write is whole by itself, and an error
says what was written. When an answer is lost the write is looked for before it is repeated (`Committer`).

Where a shard fails before anything can have been committed there, hangs or is read-only, jobs without a key are written
on another one; those with a key, or an idempotency key, wait for theirs.

Where a queue has an owner its jobs are written only by the queue's own map of keys to partitions. What was planned by
an older one is planned again by the new one, and nobody notices. A map that is not open yet is waited for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from penstock.client.call import Call, PlannedWrite, Waves
from penstock.client.callers_writer import CallersWriter
from penstock.client.checks import Checks
from penstock.client.committer import Committer
from penstock.client.loop_sender import LoopSender
from penstock.client.map_wait import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, MapWait
from penstock.client.merging import Merger
from penstock.client.pending import PendingJob, PendingRows, is_bound
from penstock.client.planning import Planner
from penstock.client.refusals import WritesFailed, check_size, locked_out, merge_errors, not_taken
from penstock.deadline import Deadline, in_this_call, within
from penstock.errors import InvalidInput, PartitionUnavailable, PenstockError, RequestTimeout
from penstock.shards.databases import Databases
from penstock.shards.depths import Depths
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.connection.callers_transaction import async_connection_beneath, connection_beneath
from penstock.storage.connection.error_meaning import DatabaseError, LockHeld, is_lost, may_repeat

__all__ = ["Producer"]

# Threads are made when they are needed: for the further shards of a call, and to ask shards for their depths.
MOST_THREADS = 1_000


class Producer:
    """One per app; used by any number of threads."""

    def __init__(
        self,
        databases: Databases,
        find_queue: Callable[[str], QueueEntry],
        find_queue_now: Callable[[str], QueueEntry],
    ) -> None:
        self._databases = databases
        self._clock, self._request_timeout = databases.lead.clock, databases.lead.request_timeout
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="penstock-enqueue")
        self._depths = Depths(databases, self._threads)
        self._planner = Planner(find_queue, self._depths)
        self._checks = Checks(databases, self._depths)
        self._map_wait = MapWait(find_queue_now, self._clock)
        self._committer = Committer(databases, self._checks)
        self._merger = Merger(databases, self._checks, self._committer)
        self._loop_sender = LoopSender(databases, self._planner.plan, self._merger, self._threads)
        self._callers_writer = CallersWriter(databases, self._planner, self._checks, self._map_wait)

    def enqueue(self, jobs: Sequence[PendingJob], deadline: Deadline, connection: Any = None) -> list[int]:
        """Write a call by its deadline; the jobs' ids, in order."""
        if not jobs:
            return []
        check_size(len(jobs))
        return self._enqueue(Call(jobs, [0] * len(jobs), deadline), connection)

    def enqueue_rows(self, rows: PendingRows, deadline: Deadline) -> list[int]:
        """Write jobs of one task by the deadline of their call; their ids, in order."""
        count = len(rows.args)
        if not count:
            return []
        check_size(count)
        return self._enqueue(Call(rows, [0] * count, deadline), rows.options.connection)

    def enqueue_from_loop(self, rows: PendingRows, again: Callable[[PendingRows], list[int]]) -> Awaitable[int]:
        """Write one job, for a coroutine; its id. `again` makes it as a plain call, where it comes to that."""
        timeout = rows.options.request_timeout
        return self._loop_sender.send(rows, again, self._request_timeout if timeout is None else timeout)

    def close(self) -> None:
        """Let the thread go that writes for coroutines, once it has nothing to write."""
        self._loop_sender.close()

    async def enqueue_in_async(self, jobs: Sequence[PendingJob], connection: Any) -> list[int]:
        """Write a call in the transaction of an asynchronous connection."""
        if not jobs:
            return []
        check_size(len(jobs))
        beneath = await async_connection_beneath(connection)
        with within(self._request_timeout, self._clock) as deadline:
            call = Call(jobs, [0] * len(jobs), deadline)
            await self._callers_writer.write_async(call, beneath)
        return call.ids

    def _enqueue(self, call: Call, connection: Any) -> list[int]:
        try:
            if connection is not None:
                self._callers_writer.write(call, connection_beneath(connection))
                return call.ids
            waves = self._plan(call)
            if len(waves) == 1 and len(waves[0]) == 1:
                write = waves[0][0]
                if write.has_children:
                    self._checks.check_parents(waves)
                self._commit(call, write)
            else:
                self._checks.check_all(waves)
                self._commit_waves(call, waves)
        except PenstockError as error:
            error.written = call.written
            raise
        except WritesFailed as failed:
            raise merge_errors(call, failed.errors) from failed
        return call.ids

    def _plan(self, call: Call) -> Waves:
        try:
            return self._planner.plan(call)
        except PartitionUnavailable as error:
            # The catalogue could not be read. Jobs that may go anywhere are no partition's.
            if any(is_bound(job) for job in call.jobs):
                raise
            raise RequestTimeout(f"{error}; nothing was written", outcome="not written") from error

    def _commit_waves(self, call: Call, waves: Waves, avoid: frozenset[int] = frozenset()) -> None:
        """Carry out the writes of each wave side by side. Where one fails the next wave is not begun."""
        for wave in waves:
            others = [self._threads.submit(in_this_call(self._commit), call, write, avoid) for write in wave[1:]]
            errors: list[BaseException] = []
            try:
                self._commit(call, wave[0], avoid)
            except Exception as error:
                errors.append(error)
            errors += [failed for each in others if (failed := each.exception()) is not None]
            if errors:
                raise WritesFailed(errors)

    def _commit(self, call: Call, write: PlannedWrite, avoid: frozenset[int] = frozenset()) -> None:
        """Carry out a write in a transaction of its own, here or on another database; repeat it until the deadline."""
        pause = FIRST_PAUSE_SECONDS
        awaits_map = False
        while True:
            try:
                # What one statement writes may be written together with other calls.
                is_written = (self._merger if write.is_few else self._committer).try_commit(call, write)
            except LockHeld as error:
                raise locked_out(call, write, self._databases.of(write.shard), error) from error
            except DatabaseError as error:
                if not may_repeat(error):
                    raise
                if call.deadline.left() <= pause:
                    if awaits_map and call.deadline.left() <= 0.0:
                        raise self._map_wait.timed_out(call, write) from error
                    raise not_taken(self._databases, call, write, error) from error
                awaits_map = False
                # One that is not lost has rolled the write back: it is tried again there.
                waves = None
                if is_lost(error):
                    waves, avoid = self._plan_elsewhere(call, write, avoid | {write.shard})
                if waves is None:
                    pause = self._wait(call, write, pause)
                    continue
            else:
                if is_written:
                    call.done.append(write)
                    return
                awaits_map = True
                try:
                    pause = self._map_wait.wait(call, write, pause)
                    waves = self._planner.plan_again(call, write, avoid)
                except PartitionUnavailable as error:
                    # What the time ran out for is the map, whatever was asked when it did.
                    if call.deadline.left() > 0.0:
                        raise
                    raise self._map_wait.timed_out(call, write) from error
            if len(waves) > 1 or len(waves[0]) > 1:
                self._commit_waves(call, waves, avoid)
                return
            write = waves[0][0]

    def _plan_elsewhere(
        self, call: Call, write: PlannedWrite, avoid: frozenset[int]
    ) -> tuple[Waves | None, frozenset[int]]:
        """Plan a write anew, without these shards where its jobs are free; None where that changes nothing. And the
        shards to avoid from then on.
        """
        others = (database.breaker for database in self._databases if database.shard not in avoid)
        if any(breaker.is_writable for breaker in others) and write.is_free:
            # Where the writes would then wait for each other they stay together.
            with suppress(InvalidInput):
                waves = self._planner.plan_again(call, write, avoid)
                if any(each.shard != write.shard for wave in waves for each in wave):
                    for group in write.groups:
                        partition = group.destination.partition_id
                        self._depths.withdraw(partition, len(group.args), is_ready=group.is_ready)
                    return waves, avoid
        return None, frozenset()

    def _wait(self, call: Call, write: PlannedWrite, pause: float) -> float:
        """Wait before a write is tried again; how long to wait the next time."""
        self._clock.sleep(pause)
        if not self._databases.has_others(write.shard) or not write.is_free:
            self._databases.of(write.shard).breaker.wait_until_up(call.deadline.left() - pause)
        return min(pause * 2, LONGEST_PAUSE_SECONDS)
