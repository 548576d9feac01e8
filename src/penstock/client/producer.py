"""The producer: turns checked jobs into writes, and keeps trying until the time is up.

What a call writes on one shard is one transaction; over several shards each part is whole by itself, and an error says
what was written. When an answer is lost the part is looked for before it is repeated: a job is never written twice, and
never dropped in silence.

Where a shard fails before anything can have been committed there, hangs or is read-only, jobs without a key are written
on another one; those with a key, or an idempotency key, wait for theirs.

Where a queue has an owner its jobs are written only by the queue's own map of keys to partitions. What was planned by
an older one is planned again by the new one, and nobody notices. A map that is not open yet is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from penstock.client.options import Options
from penstock.client.pending import PendingJob, pending_rows
from penstock.client.planning import Call, Part, Planner, Rows, Waves, check_size
from penstock.deadline import in_this_call, within
from penstock.errors import InvalidInput, PartitionUnavailable, PenstockError, QueueFull, RequestTimeout
from penstock.shards.callers import Caller, Callers
from penstock.shards.databases import Databases
from penstock.shards.depths import Depths
from penstock.shards.former_homes import ask_former_homes
from penstock.shards.parents import check_parents
from penstock.storage.catalogue import queues as catalogue
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.connection.callers_transaction import (
    async_connection_beneath,
    callers_session,
    connection_beneath,
    part_of_transaction,
    part_of_transaction_async,
)
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import (
    ConnectionCut,
    DatabaseError,
    LockHeld,
    is_denial,
    is_drained,
    is_lost,
    may_repeat,
    with_remedy,
)
from penstock.storage.connection.flow import session_of
from penstock.storage.connection.pool import refuse_cut
from penstock.storage.enqueue.receipts import Receipt, look_for
from penstock.storage.enqueue.write import (
    Child,
    Span,
    drive,
    drive_async,
    drive_transaction,
    newest_of,
    note_newest,
    read_place,
    set_ids,
    write_few,
    write_spans,
)
from penstock.storage.upkeep.sweep import unblock
from penstock.task.definition import TaskDefinition

__all__ = ["Producer"]

# Threads are made when they are needed: for the further shards of a call, and to ask shards for their depths.
MOST_THREADS = 1_000
FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.5


class Producer:
    """One per app; used by any number of threads."""

    def __init__(
        self,
        databases: Databases,
        find_queue: Callable[[str], QueueEntry],
        find_queue_now: Callable[[str], QueueEntry],
    ) -> None:
        self._databases = databases
        self._find_queue_now = find_queue_now
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="penstock-enqueue")
        self._depths = Depths(databases, self._threads)
        self._planner = Planner(find_queue, self._depths)
        # On connections of callers, which know nothing of it.
        self._schema = databases.lead.schema
        self._clock, self._request_timeout = databases.lead.clock, databases.lead.request_timeout
        self._callers = Callers(databases)

    def enqueue(self, jobs: Sequence[PendingJob], connection: Any = None, timeout: float | None = None) -> list[int]:
        """Write a call; the jobs' ids, in order."""
        if not jobs:
            return []
        check_size(len(jobs))
        with within(self._request_timeout if timeout is None else timeout, self._clock) as deadline:
            call = Call([0] * len(jobs), lambda: jobs, deadline)
            return self._enqueue(call, partial(self._planner.plan, jobs), connection)

    def enqueue_rows(
        self, task: TaskDefinition, options: Options, args: list[bytes], keys: list[bytes | None] | None
    ) -> list[int]:
        """Write many jobs of one task; their ids, in order."""
        if not args:
            return []
        check_size(len(args))
        rows = Rows(task, options, args, keys)
        timeout = options.request_timeout
        with within(self._request_timeout if timeout is None else timeout, self._clock) as deadline:
            call = Call([0] * len(args), lambda: pending_rows(task, options, args, keys), deadline)
            return self._enqueue(call, partial(self._planner.plan_rows, rows), options.connection)

    async def enqueue_in_async(self, jobs: Sequence[PendingJob], connection: Any) -> list[int]:
        """Write a call in the transaction of an asynchronous connection."""
        if not jobs:
            return []
        check_size(len(jobs))
        beneath = await async_connection_beneath(connection)
        with within(self._request_timeout, self._clock) as deadline:
            return await self._enqueue_in_async(Call([0] * len(jobs), lambda: jobs, deadline), jobs, beneath)

    async def _enqueue_in_async(self, call: Call, jobs: Sequence[PendingJob], beneath: Any) -> list[int]:
        caller = self._callers.known(beneath)
        if caller is None:
            found = await drive_async(beneath, read_place(), self._schema)
            caller = await asyncio.to_thread(self._callers.check, beneath, *found)
        pause = FIRST_PAUSE_SECONDS
        while True:
            part = await asyncio.to_thread(self._plan_through, call, partial(self._planner.plan, jobs), caller)
            with callers_session(beneath):
                if part.is_few:
                    is_written = await drive_async(beneath, write_few(part.spans[0], call.ids), self._schema)
                else:
                    async with part_of_transaction_async(beneath):
                        is_written = await drive_async(beneath, write_spans(part.spans, call.ids), self._schema)
            if is_written:
                return call.ids
            pause = await asyncio.to_thread(self._await_map, call, part, pause)

    def _enqueue(self, call: Call, plan: Callable[..., Waves], connection: Any) -> list[int]:
        try:
            if connection is not None:
                self._write_through(call, plan, connection_beneath(connection))
                return call.ids
            waves = self._planned(call, plan)
            if len(waves) == 1 and len(waves[0]) == 1:
                part = waves[0][0]
                if part.has_children:
                    self._check_parents(waves)
                self._write(call, part)
            else:
                self._look_ahead(waves)
                self._write_waves(call, waves)
        except PenstockError as error:
            error.written = call.written
            raise
        except PartsFailed as failed:
            raise _told(call, failed.errors) from failed
        return call.ids

    def _planned(self, call: Call, plan: Callable[..., Waves]) -> Waves:
        try:
            return plan()
        except PartitionUnavailable as error:
            # The catalogue could not be read. Jobs that may go anywhere are no partition's.
            if any(job.key is not None or job.options.idempotency_key is not None for job in call.jobs()):
                raise
            raise RequestTimeout(f"{error}; nothing was written", outcome="not written") from error

    # In the caller's transaction

    def _write_through(self, call: Call, plan: Callable[..., Waves], connection: Connection) -> None:
        """Write a call in the transaction of its caller, on the shard that the connection leads to."""
        caller = self._callers.known(connection)
        if caller is None:
            caller = self._callers.check(connection, *drive(connection, read_place(), self._schema))
        pause = FIRST_PAUSE_SECONDS
        while True:
            part = self._plan_through(call, plan, caller)
            with callers_session(connection):
                if self._send(connection, part, call.ids, None):
                    return
            pause = self._await_map(call, part, pause)

    def _plan_through(self, call: Call, plan: Callable[..., Waves], caller: Caller) -> Part:
        waves = plan(caller=caller)
        ((part,),) = waves
        if part.has_children:
            self._check_parents(waves)
        if part.limited:
            check = partial(self._check_lengths, part)
            self._databases.of(part.shard).run(check, writes=False)
        ask_former_homes(self._databases, part.shard, part.spans, part.entries, call.deadline)
        return part

    # In transactions of its own

    def _write_waves(self, call: Call, waves: Waves, avoid: frozenset[int] = frozenset()) -> None:
        """Write parts, those of a wave side by side. Where one fails the next wave is not begun."""
        for wave in waves:
            others = [self._threads.submit(in_this_call(self._write), call, part, avoid) for part in wave[1:]]
            errors: list[BaseException] = []
            try:
                self._write(call, wave[0], avoid)
            except Exception as error:
                errors.append(error)
            errors += [failed for each in others if (failed := each.exception()) is not None]
            if errors:
                raise PartsFailed(errors)

    def _write(self, call: Call, part: Part, avoid: frozenset[int] = frozenset()) -> None:
        """Write a part in a transaction of its own, here or elsewhere."""
        pause = FIRST_PAUSE_SECONDS
        awaits_map = False
        while True:
            try:
                is_written = self._try(call, part)
            except LockHeld as error:
                raise RequestTimeout(
                    f"{_counted(part)} could not be written within {call.deadline.seconds:g} s: at "
                    f"{self._databases.of(part.shard).breaker.label} {_first_line(error)}, such as one that enqueues "
                    "with the same idempotency key and has not ended; none of them was written, call again when it has",
                    outcome="not written",
                ) from error
            except DatabaseError as error:
                if not may_repeat(error):
                    raise
                if call.deadline.left() <= pause:
                    if awaits_map and call.deadline.left() <= 0.0:
                        raise self._map_not_open(call, part) from error
                    raise self._refusal(call, part, error) from error
                awaits_map = False
                if not is_lost(error):
                    # It was rolled back.
                    pause = self._wait(call, part, pause)
                    continue
                waves, avoid = self._moved(call, part, avoid | {part.shard})
                if waves is None:
                    pause = self._wait(call, part, pause)
                    continue
            else:
                if is_written:
                    call.done.append(part)
                    return
                awaits_map = True
                try:
                    pause = self._await_map(call, part, pause)
                    waves = self._planner.plan(call.jobs(), part.places, avoid)
                except PartitionUnavailable as error:
                    # What the time ran out for is the map, whatever was asked when it did.
                    if call.deadline.left() > 0.0:
                        raise
                    raise self._map_not_open(call, part) from error
            if len(waves) > 1 or len(waves[0]) > 1:
                self._write_waves(call, waves, avoid)
                return
            part = waves[0][0]

    def _try(self, call: Call, part: Part) -> bool:
        """Try once; False where a map is not its queue's, or not open yet. Raises where nothing was written."""
        database = self._databases.of(part.shard)
        receipt = Receipt()
        ask_former_homes(self._databases, part.shard, part.spans, part.entries, call.deadline)
        try:
            with database.connection() as connection:
                if part.limited and not part.is_checked:
                    self._check_lengths(part, connection)
                refuse_cut(connection)
                self._prepare_receipt(call, database, connection, part, receipt)
                is_written = self._send(connection, part, call.ids, receipt)
                receipt.is_sent = False
                if is_written and part.has_children:
                    # Or upkeep does it.
                    with suppress(DatabaseError):
                        unblock(connection, part.children(call.ids))
            return is_written
        except Exception as error:
            # Whether it was sent decides, and whether the server itself said no: never what a connection looks like.
            if receipt.is_sent and not is_denial(error):
                if self._was_written(call, part, database, receipt):
                    return True
                raise ConnectionCut(f"the session ended before it had committed ({_first_line(error)})") from error
            if is_drained(error):
                return False
            raise

    def _prepare_receipt(
        self, call: Call, database: Database, connection: Connection, part: Part, receipt: Receipt
    ) -> None:
        receipt.session = session_of(connection)
        if database.is_pooled:
            receipt.keep(call.deadline.seconds)
        elif part.is_few:
            receipt.after = newest_of(connection) - 1024
        if database.is_pooled or part.is_few:
            receipt.token = database.clock.random_token()

    def _send(self, connection: Connection, part: Part, ids: list[int], receipt: Receipt | None) -> bool:
        if part.is_few:
            if receipt is None:
                return drive(connection, write_few(part.spans[0], ids), self._schema)
            receipt.is_sent = True
            is_written = drive(connection, write_few(part.spans[0], ids, receipt))
            if is_written:
                note_newest(connection, ids[part.spans[0].places[-1]])
            return is_written
        if receipt is not None:
            return drive_transaction(connection, write_spans(part.spans, ids, receipt), receipt)
        with part_of_transaction(connection):
            return drive(connection, write_spans(part.spans, ids), self._schema)

    def _was_written(self, call: Call, part: Part, database: Database, receipt: Receipt) -> bool:
        try:
            first_id = look_for(database, receipt)
        except PartitionUnavailable as error:
            raise RequestTimeout(
                f"the answer to an enqueue of {_counted(part)} was lost, and {database.breaker.label} did not come "
                f"back within {call.deadline.seconds:g} s to say whether they were written "
                f"({_first_line(error.__cause__ or error)}); "
                "repeat the call only with idempotency keys, or look with app.jobs first",
                outcome="unknown",
            ) from error
        if first_id is not None and part.is_few:
            set_ids(part.spans[0].places, call.ids, first_id)
        return first_id is not None

    def _moved(self, call: Call, part: Part, avoid: frozenset[int]) -> tuple[Waves | None, frozenset[int]]:
        """The part planned anew, without these shards where its jobs are free; None where that changes nothing."""
        others = (database.breaker for database in self._databases if database.shard not in avoid)
        if part.is_free and any(breaker.is_writable for breaker in others):
            # Where parts would then wait for each other they stay together.
            with suppress(InvalidInput):
                waves = self._planner.plan(call.jobs(), part.places, avoid)
                if any(each.shard != part.shard for wave in waves for each in wave):
                    for span in part.spans:
                        self._depths.withdraw(span.partition_id, len(span.args), is_ready=span.is_ready)
                    return waves, avoid
        return None, frozenset()

    def _wait(self, call: Call, part: Part, pause: float) -> float:
        """Wait before a part is tried again; how long to wait the next time."""
        self._clock.sleep(pause)
        if not part.is_free or not self._databases.has_others(part.shard):
            self._databases.of(part.shard).breaker.wait_until_up(call.deadline.left() - pause)
        return min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _await_map(self, call: Call, part: Part, pause: float) -> float:
        """Learn the maps of a part's queues anew, after a pause where they are what they were: one is not open yet."""
        entries = _mapped(part)
        fresh = [self._find_queue_now(entry.name) for entry in entries]
        if any(new.epoch != old.epoch for new, old in zip(fresh, entries, strict=True)):
            return FIRST_PAUSE_SECONDS
        if call.deadline.left() <= pause:
            raise self._map_not_open(call, part)
        self._clock.sleep(pause)
        return min(pause * 2, LONGEST_PAUSE_SECONDS)

    @staticmethod
    def _map_not_open(call: Call, part: Part) -> PartitionUnavailable:
        names = ", ".join(repr(entry.name) for entry in _mapped(part))
        return PartitionUnavailable(
            f"{_counted(part)} could not be written within {call.deadline.seconds:g} s: queue {names} gets another "
            "map of its keys, and not all its shards have it; see `penstock shards`, and call again",
            shard=part.shard,
            partition=part.partitions[0],
        )

    def _refusal(self, call: Call, part: Part, error: BaseException) -> PenstockError:
        """The error for a part that nobody took in time."""
        database = self._databases.of(part.shard)
        if part.is_bound:
            told = database.unavailable(error)
            names = part.partitions
            return PartitionUnavailable(
                f"{_counted(part)} for partition{'s' * (len(names) > 1)} {', '.join(map(repr, names))} could not be "
                f"written within {call.deadline.seconds:g} s: {told}",
                shard=part.shard,
                partition=names[0],
            )
        if self._databases.has_others(part.shard):
            entries = part.entries.values()
            shards = sorted({each for entry in entries for each in entry.partition_shards[: entry.partition_count]})
            where = f"no shard of their queue ({', '.join(map(str, shards))}) takes them"
        else:
            where = f"{database.breaker.label} {'does not answer' if is_lost(error) else 'rolled them back each time'}"
        return RequestTimeout(
            f"{_counted(part)} could not be written within {call.deadline.seconds:g} s: {where} "
            f"({with_remedy(error)}); none of them was written, so the call may be repeated",
            outcome="not written",
        )

    # Before anything is written

    def _look_ahead(self, waves: Waves) -> None:
        """Find what would refuse a call over several shards before a part of it is written."""
        self._check_parents(waves)
        for part in (part for wave in waves for part in wave if part.limited):
            # A shard that does not answer is asked when its part is written.
            with suppress(PartitionUnavailable):
                database = self._databases.of(part.shard)
                if not database.breaker.is_down:
                    check = partial(self._check_lengths, part)
                    database.run(check, writes=False)
                    part.is_checked = True

    def _check_lengths(self, part: Part, connection: Connection) -> None:
        """Refuse a part where a partition would grow longer than its queue allows."""
        self._depths.fold(part.shard, connection)
        for partition, entry in part.limited.items():
            count = sum(len(span.args) for span in part.spans if span.partition_id == partition)
            if (
                entry.rules.max_length is not None
                and catalogue.waiting_in(connection, partition) + count > entry.rules.max_length
            ):
                raise QueueFull(entry.name, entry.rules.max_length)

    def _check_parents(self, waves: Waves) -> None:
        """Refuse parents that are nowhere, as far as what writes the children does not do it."""
        parts = (part for wave in waves for part in wave if part.has_children)
        children = ((child, part.shard) for part in parts for span in part.spans for child in _children(span))
        check_parents(self._databases, children)


class PartsFailed(Exception):
    """Some parts of a call could not be written."""

    def __init__(self, errors: Sequence[BaseException]) -> None:
        super().__init__("parts of a call failed")
        self.errors: list[BaseException] = [
            each for error in errors for each in (error.errors if isinstance(error, PartsFailed) else [error])
        ]


def _told(call: Call, errors: Sequence[BaseException]) -> BaseException:
    """One error for all parts that failed, with what was written all the same."""
    written = call.written
    count = sum(each is not None for each in written)
    note = f"{count} of the call's {len(written)} jobs were written all the same: the error's `written` has their ids"
    for error in errors:
        if not isinstance(error, (PartitionUnavailable, RequestTimeout)):
            error.add_note(note)
            if isinstance(error, PenstockError):
                error.written = written
            return error
    told: PartitionUnavailable | RequestTimeout
    said = "; ".join(dict.fromkeys(str(error) for error in errors)) + (f"; {note}" if count else "")
    unavailable = next((error for error in errors if isinstance(error, PartitionUnavailable)), None)
    if any(isinstance(error, RequestTimeout) and error.outcome == "unknown" for error in errors):
        told = RequestTimeout(said, outcome="unknown")
    elif unavailable is not None or count:
        shard, partition = (None, None) if unavailable is None else (unavailable.shard, unavailable.partition)
        told = PartitionUnavailable(said, shard=shard, partition=partition)
        told.outcome = "unknown" if count else "not written"
    else:
        told = RequestTimeout(said, outcome="not written")
    told.written = written
    return told


def _children(span: Span) -> Collection[Child]:
    return () if span.children is None else span.children.values()


def _mapped(part: Part) -> list[QueueEntry]:
    """The queues whose maps a part was written by."""
    held = {span.queue_id for span in part.spans if span.epoch is not None or span.held is not None}
    # Where none is held, a shard that is drained has refused the part.
    held = held or set(part.entries)
    return [entry for queue, entry in part.entries.items() if queue in held]


def _counted(part: Part) -> str:
    count = sum(len(span.args) for span in part.spans)
    return "1 job" if count == 1 else f"{count} jobs"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
