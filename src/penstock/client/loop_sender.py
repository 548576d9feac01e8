"""Calls of coroutines, written by one thread for all of them.

A coroutine binds its arguments on its event loop, hands the call in and awaits a future. The sender takes what was
handed in since the last time, plans it, writes it together, and tells each loop once what became of it. Meanwhile the
next calls gather: so many tasks of a loop make few transactions, and none of them a thread.

What does not simply succeed there is gone through again call by call, each in a thread and in the context of its own
task, as a plain call would be: it meets its own refusal, and has its own time.

A sender that gets no answer holds up nobody else: when it has been at one write for long, a second one takes its place.
With several shards a write never holds up those to others, for each is carried out in a thread of its own. Nor does a
call wait beyond its deadline, whoever has it: its loop looks after that.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import NamedTuple

from penstock.client.call import Call, PlannedWrite, Waves
from penstock.client.merging import Merger
from penstock.client.pending import PendingRows
from penstock.client.waiting_line import MOST_BYTES, Entry
from penstock.clock import system
from penstock.deadline import Deadline, begin_deadline, earliest, keeping
from penstock.errors import PenstockError, RequestTimeout
from penstock.shards.databases import Databases
from penstock.storage.connection.error_meaning import DatabaseError, StillInLine
from penstock.storage.enqueue.job_group import RANGE, JobGroup

__all__ = ["LoopSender"]

# A sender that nobody needs ends.
IDLE_SECONDS = 30.0
# How often a loop looks after its calls, and after how long at one write a sender is replaced.
LOOK_SECONDS = 0.25
STUCK_SECONDS = 1.0
# Whoever has a call ends by its deadline, or a moment later, and knows best what became of it.
GRACE_SECONDS = 0.7
# For the calls that are made again: others of the producer's are not to wait for a thread because of them.
MOST_THREADS = 1_000


class Item:
    """One call of a coroutine: one job. `again` makes it as a plain call."""

    __slots__ = ("again", "context", "deadline", "future", "is_given_up", "is_taken", "loop", "rows")

    def __init__(
        self,
        rows: PendingRows,
        again: Callable[[PendingRows], list[int]],
        deadline: Deadline,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.rows = rows
        self.again = again
        self.deadline = deadline
        self.context: Context = copy_context()
        self.loop = loop
        self.future: asyncio.Future[int] = loop.create_future()
        # Whether somebody writes it, or may have; and whether its loop has ended the wait, and nobody may any more.
        self.is_taken = False
        self.is_given_up = False


class Planned(NamedTuple):
    """What calls that are alike write on one shard."""

    call: Call
    write: PlannedWrite
    items: Sequence[Item]

    @property
    def written_items(self) -> list[Item]:
        return [self.items[index] for index in self.write.indexes]


class LoopSender:
    """One per producer; used by any number of event loops."""

    def __init__(
        self, databases: Databases, plan: Callable[[Call], Waves], merger: Merger, threads: ThreadPoolExecutor
    ) -> None:
        self._databases = databases
        self._plan = plan
        self._merger = merger
        self._threads = threads
        self._threads_for_again = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="penstock-enqueue-again")
        self._changed = threading.Condition(threading.Lock())
        self._inbox: deque[Item] = deque()
        # Who takes from the inbox, whether it waits for something to be there, and since when it is at one write.
        self._sender: threading.Thread | None = None
        self._is_idle = False
        self._busy_since: float | None = None
        self._is_closed = False
        # The calls that each loop looks after; those that have ended are left out at its next look.
        self._looked_after: dict[asyncio.AbstractEventLoop, list[Item]] = {}

    def send(self, rows: PendingRows, again: Callable[[PendingRows], list[int]], seconds: float) -> asyncio.Future[int]:
        """Hand in a call of one job, on the loop that will be told its id."""
        loop = asyncio.get_running_loop()
        item = Item(rows, again, begin_deadline(seconds), loop)
        with self._changed:
            if self._sender is None:
                self._start_sender()
            elif self._is_idle:
                self._is_idle = False
                self._changed.notify()
            self._inbox.append(item)
            items = self._looked_after.get(loop)
            if items is None:
                items = self._begin_to_look_after(loop)
            items.append(item)
        return item.future

    def close(self) -> None:
        """Nobody is going to hand in calls: the sender ends when it has nothing to write."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _start_sender(self) -> None:
        sender = threading.Thread(target=self._run, name="penstock-sender", daemon=True)
        sender.start()
        self._sender, self._is_idle, self._busy_since = sender, False, None

    def _begin_to_look_after(self, loop: asyncio.AbstractEventLoop) -> list[Item]:
        # A loop that was closed before it could look again has nobody who waits.
        for closed in [each for each in self._looked_after if each.is_closed()]:
            del self._looked_after[closed]
        loop.call_later(LOOK_SECONDS, self._look_after, loop)
        return self._looked_after.setdefault(loop, [])

    def _look_after(self, loop: asyncio.AbstractEventLoop) -> None:
        """On a loop: end the waits whose time is up, and replace a sender that is stuck."""
        late: list[Item] = []
        with self._changed:
            now = system.monotonic()
            items = [item for item in self._looked_after.pop(loop, ()) if not item.future.done()]
            for item in items:
                if item.deadline.at + (GRACE_SECONDS if item.is_taken else 0.0) <= now:
                    item.is_given_up = True
                    late.append(item)
            if self._inbox and self._busy_since is not None and now - self._busy_since > STUCK_SECONDS:
                # Where no thread can be had, the next look tries again.
                with suppress(RuntimeError):
                    self._start_sender()
            if len(late) < len(items):
                self._looked_after[loop] = items
                loop.call_later(LOOK_SECONDS, self._look_after, loop)
        _set_outcomes([(item, _timed_out(item)) for item in late])

    def _run(self) -> None:
        me = threading.current_thread()
        try:
            while items := self._take(me):
                self._plan_and_write(items)
        finally:
            with self._changed:
                if self._sender is me:
                    self._sender = None
                    if self._inbox:
                        self._start_sender()

    def _take(self, me: threading.Thread) -> list[Item]:
        """What was handed in, as much as is written together; nothing: another sender is there, or nobody needs one."""
        with self._changed:
            while self._sender is me:
                items: list[Item] = []
                size = 0
                now = system.monotonic()
                while self._inbox and len(items) < RANGE:
                    size += len(self._inbox[0].rows.args[0])
                    if items and size > MOST_BYTES:
                        break
                    item = self._inbox.popleft()
                    # One that is done was cancelled; where the time is up the loop says so.
                    if not (item.is_given_up or item.future.done() or item.deadline.at <= now):
                        item.is_taken = True
                        items.append(item)
                if items:
                    self._busy_since = now
                    return items
                self._busy_since, self._is_idle = None, True
                if self._is_closed or (not self._changed.wait(IDLE_SECONDS) and self._is_idle):
                    self._sender = None
            return []

    def _plan_and_write(self, items: Sequence[Item]) -> None:
        """Write calls together, shard by shard. None of them has more time than the one that has least."""
        by_shard: dict[int, list[Planned]] = {}
        deadline = earliest(item.deadline for item in items)
        for alike in _group_alike(items):
            for planned in self._plan_alike(alike, deadline):
                by_shard.setdefault(planned.write.shard, []).append(planned)
        for shard, together in by_shard.items():
            write = partial(self._write, shard, together)
            if self._databases.has_others(shard):
                _do_in_thread(self._threads, write)
            else:
                write()

    def _plan_alike(self, items: list[Item], deadline: Deadline) -> list[Planned]:
        """Plan calls that are alike as if they were one: where they go is the same for all, or up to each key."""
        first = items[0].rows
        keys = None if first.keys is None else [key for item in items for key in item.rows.keys or ()]
        rows = PendingRows(first.task, first.options, [item.rows.args[0] for item in items], keys)
        call = Call(rows, [0] * len(items), earliest(item.deadline for item in items))
        try:
            with keeping(deadline):
                (writes,) = self._plan(call)
        except Exception:
            # Nothing was sent: each meets by itself whatever it was.
            self._make_again(items)
            return []
        return [Planned(call, write, items) for write in writes]

    def _write(self, shard: int, together: Sequence[Planned]) -> None:
        """Write what goes to one shard, and see to it that every call of it is answered."""
        try:
            with keeping(earliest(planned.call.deadline for planned in together)):
                if len(together) == 1 and together[0].write.job_count == 1:
                    self._write_one(together[0])
                else:
                    self._write_many(shard, together)
        except StillInLine:
            for planned in together:
                self._make_again(planned.written_items)
        except BaseException as error:
            _tell([(item, error) for planned in together for item in planned.written_items])
            raise

    def _write_one(self, planned: Planned) -> None:
        call, write, _ = planned
        (item,) = planned.written_items
        try:
            is_written = self._merger.try_commit(call, write)
        except PenstockError as error:
            error.written = [None]
            _tell([(item, error)])
        except DatabaseError:
            self._make_again([item])
        else:
            if is_written:
                _tell([(item, call.ids[write.indexes[0]])])
            else:
                self._make_again([item])

    def _write_many(self, shard: int, together: Sequence[Planned]) -> None:
        told: list[tuple[Item, int | BaseException]] = []
        items_of = {id(planned.call): planned.items for planned in together}
        for entry in self._merger.write_for_many(shard, [(planned.call, planned.write) for planned in together]):
            call, indexes, items = entry.call, entry.group.indexes, items_of[id(entry.call)]
            if entry.fate == "written":
                told += [(items[index], call.ids[index]) for index in indexes]
            elif entry.fate == "alone":
                self._make_again([items[index] for index in indexes])
            else:
                for index in indexes:
                    act = partial(self._find_out, shard, items[index], index, entry)
                    self._in_thread(items[index], act, may_be_written=True)
        _tell(told)

    def _find_out(self, shard: int, item: Item, index: int, entry: Entry) -> int:
        """In a thread: the id of a call whose answer was lost; it is made again where it was not written."""
        own = PlannedWrite(shard, [JobGroup(entry.group.destination, [0], item.rows.args)])
        try:
            self._merger.find_out(entry, own, Call(item.rows, [0], item.deadline))
        except DatabaseError:
            return item.again(item.rows)[0]
        return entry.call.ids[index]

    def _make_again(self, items: Sequence[Item]) -> None:
        for item in items:
            self._in_thread(item, partial(_make_again, item), may_be_written=False)

    def _in_thread(self, item: Item, act: Callable[[], int], *, may_be_written: bool) -> None:
        """Do something for a call, in the context of its task."""

        def run() -> None:
            with self._changed:
                # Its task may have been cancelled meanwhile.
                if item.is_given_up or item.future.done():
                    return
                item.is_taken = True
            try:
                job_id = item.context.run(_act_within, item.deadline, act)
            except BaseException as error:
                _tell([(item, error)])
            else:
                _tell([(item, job_id)])

        with self._changed:
            item.is_taken = may_be_written
        _do_in_thread(self._threads_for_again, run)


def _do_in_thread(threads: ThreadPoolExecutor, act: Callable[[], None]) -> None:
    """Do something in another thread; here, where the program ends and none begins any more."""
    try:
        threads.submit(act)
    except RuntimeError:
        act()


def _act_within(deadline: Deadline, act: Callable[[], int]) -> int:
    with keeping(deadline):
        return act()


def _make_again(item: Item) -> int:
    """In a thread: make a call as a plain one."""
    return item.again(item.rows)[0]


def _timed_out(item: Item) -> RequestTimeout:
    """The error for a call that nobody has answered in time."""
    seconds = f"{item.deadline.seconds:g} s"
    if item.is_taken:
        error = RequestTimeout(
            f"no answer came within {seconds} to an enqueue of 1 job; repeat the call only with an idempotency key, or "
            "look with app.jobs first",
            outcome="unknown",
        )
    else:
        error = RequestTimeout(
            f"1 job could not be written within {seconds}: other calls were under way all that time, and nothing was "
            "written; call again",
            outcome="not written",
        )
    error.written = [None]
    return error


def _group_alike(items: Iterable[Item]) -> list[list[Item]]:
    """Calls of the same task with the same options, in the order in which they came."""
    alike: dict[tuple[int, int, bool], list[Item]] = {}
    for item in items:
        rows = item.rows
        alike.setdefault((id(rows.task), id(rows.options), rows.keys is None), []).append(item)
    return list(alike.values())


def _tell(told: Sequence[tuple[Item, int | BaseException]]) -> None:
    """Tell each loop once what became of its calls."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Item, int | BaseException]]] = {}
    for each in told:
        by_loop.setdefault(each[0].loop, []).append(each)
    for loop, outcomes in by_loop.items():
        # A loop that is closed has nobody who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_set_outcomes, outcomes)


def _set_outcomes(outcomes: Sequence[tuple[Item, int | BaseException]]) -> None:
    for item, outcome in outcomes:
        future = item.future
        # One that is done was cancelled.
        if future.done():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
