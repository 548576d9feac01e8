"""Calls of coroutines, written by one thread for all of them.

A coroutine binds its arguments on its event loop, hands the call in and awaits a future. The sender takes what was
handed in since the last time, plans it, writes it together, and tells each loop once what became of it. Meanwhile the
next calls gather: so many tasks of a loop make few transactions, and none of them a thread.

What does not simply succeed there is gone through again call by call, each in a thread and in the context of its own
task, as a plain call would be: it meets its own refusal, and has its own time.

A sender that gets no answer holds up nobody else: when it has been at one write for long, a second one takes its place.
With several shards a write never holds up those to others, for each is carried out in a thread of its own. Nor does a
call wait for the sender beyond its deadline: its loop looks after that.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial

from penstock.client.call import Call, PlannedWrite, Waves
from penstock.client.merging import Merger
from penstock.client.pending import PendingRows
from penstock.client.waiting_line import MOST_BYTES, Entry
from penstock.clock import system
from penstock.deadline import Deadline, keeping, within
from penstock.errors import PenstockError, RequestTimeout
from penstock.shards.databases import Databases
from penstock.storage.connection.error_meaning import DatabaseError, StillInLine
from penstock.storage.enqueue.job_group import RANGE, JobGroup

__all__ = ["LoopSender"]

# A sender that nobody needs ends.
IDLE_SECONDS = 30.0
# How often a loop looks after calls that nobody has taken, and after how long at one write a sender is replaced.
LOOK_SECONDS = 0.25
STUCK_SECONDS = 1.0


class Item:
    """One call of a coroutine: one job. `again` makes it as a plain call."""

    __slots__ = ("again", "context", "deadline", "future", "loop", "rows")

    def __init__(
        self,
        rows: PendingRows,
        again: Callable[[], list[int]],
        deadline: Deadline,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.rows = rows
        self.again = again
        self.deadline = deadline
        self.context: Context = copy_context()
        self.loop = loop
        self.future: asyncio.Future[int] = loop.create_future()


class LoopSender:
    """One per producer; used by any number of event loops."""

    def __init__(
        self, databases: Databases, plan: Callable[[Call], Waves], merger: Merger, threads: ThreadPoolExecutor
    ) -> None:
        self._databases = databases
        self._plan = plan
        self._merger = merger
        self._threads = threads
        self._changed = threading.Condition(threading.Lock())
        self._inbox: deque[Item] = deque()
        # Who takes from the inbox, whether it waits for something to be there, and since when it is at one write.
        self._sender: threading.Thread | None = None
        self._is_idle = False
        self._busy_since: float | None = None
        self._is_closed = False
        self._looked_after: set[asyncio.AbstractEventLoop] = set()

    def send(self, rows: PendingRows, again: Callable[[], list[int]], seconds: float) -> asyncio.Future[int]:
        """Hand in a call of one job, on the loop that will be told its id."""
        loop = asyncio.get_running_loop()
        item = Item(rows, again, within(seconds).deadline, loop)
        with self._changed:
            self._inbox.append(item)
            if self._sender is None:
                self._start_sender()
            elif self._is_idle:
                self._is_idle = False
                self._changed.notify()
            if loop not in self._looked_after:
                self._looked_after.add(loop)
                loop.call_later(LOOK_SECONDS, self._look_after, loop)
        return item.future

    def close(self) -> None:
        """Nobody is going to hand in calls: the sender ends when it has nothing to write."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _start_sender(self) -> None:
        self._is_idle, self._busy_since = False, None
        self._sender = threading.Thread(target=self._run, name="penstock-sender", daemon=True)
        self._sender.start()

    def _look_after(self, loop: asyncio.AbstractEventLoop) -> None:
        """On a loop: give up what nobody has taken in time, and replace a sender that is stuck."""
        with self._changed:
            late = [item for item in self._inbox if item.loop is loop and item.deadline.left() <= 0.0]
            for item in late:
                self._inbox.remove(item)
            busy_since = self._busy_since
            if self._inbox and busy_since is not None and system.monotonic() - busy_since > STUCK_SECONDS:
                self._start_sender()
            if any(item.loop is loop for item in self._inbox):
                loop.call_later(LOOK_SECONDS, self._look_after, loop)
            else:
                self._looked_after.discard(loop)
        for item in late:
            error = RequestTimeout(
                f"1 job could not be written within {item.deadline.seconds:g} s: other calls were under way all that "
                "time, and nothing was written; call again",
                outcome="not written",
            )
            error.written = [None]
            _set_outcomes([(item.future, error)])

    def _run(self) -> None:
        me = threading.current_thread()
        try:
            while items := self._take(me):
                for together in _group_alike(items):
                    self._plan_and_write(together)
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
                while self._inbox and len(items) < RANGE:
                    size += len(self._inbox[0].rows.args[0])
                    if items and size > MOST_BYTES:
                        break
                    item = self._inbox.popleft()
                    # One that is done was cancelled.
                    if not item.future.done():
                        items.append(item)
                if items:
                    self._busy_since = system.monotonic()
                    return items
                self._busy_since, self._is_idle = None, True
                if self._is_closed or (not self._changed.wait(IDLE_SECONDS) and self._is_idle):
                    self._sender = None
            return []

    def _plan_and_write(self, items: list[Item]) -> None:
        """Plan calls that are alike as if they were one: where they go is the same for all, or up to each key."""
        first = items[0].rows
        keys = None if first.keys is None else [key for item in items for key in item.rows.keys or ()]
        rows = PendingRows(first.task, first.options, [item.rows.args[0] for item in items], keys)
        call = Call(rows, [0] * len(items), min((item.deadline for item in items), key=lambda each: each.at))
        try:
            with keeping(call.deadline):
                (writes,) = self._plan(call)
        except Exception:
            # Nothing was sent: each meets by itself whatever it was.
            self._make_again(items)
            return
        for write in writes:
            if self._databases.has_others(write.shard):
                self._threads.submit(self._write, call, write, items)
            else:
                self._write(call, write, items)

    def _write(self, call: Call, write: PlannedWrite, items: Sequence[Item]) -> None:
        """Write what goes to one shard, and see to it that every call of it is answered."""
        try:
            with keeping(call.deadline):
                if write.job_count == 1:
                    self._write_one(call, write, items[write.indexes[0]])
                else:
                    self._write_many(call, write, items)
        except StillInLine:
            self._make_again([items[index] for index in write.indexes])
        except BaseException as error:
            _tell([(items[index], error) for index in write.indexes])
            raise

    def _write_one(self, call: Call, write: PlannedWrite, item: Item) -> None:
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

    def _write_many(self, call: Call, write: PlannedWrite, items: Sequence[Item]) -> None:
        told: list[tuple[Item, int | BaseException]] = []
        for entry in self._merger.write_for_many(call, write):
            indexes = entry.group.indexes
            if entry.fate == "written":
                told += [(items[index], call.ids[index]) for index in indexes]
            elif entry.fate == "alone":
                self._make_again([items[index] for index in indexes])
            else:
                for index in indexes:
                    self._in_thread(items[index], partial(self._find_out, items[index], index, entry, write))
        _tell(told)

    def _find_out(self, item: Item, index: int, entry: Entry, write: PlannedWrite) -> int:
        """In a thread: the id of a call whose answer was lost; it is made again where it was not written."""
        own = PlannedWrite(write.shard, [JobGroup(entry.group.destination, [0], item.rows.args)])
        try:
            self._merger.find_out(entry, own, Call(item.rows, [0], item.deadline))
        except DatabaseError:
            return item.again()[0]
        return entry.call.ids[index]

    def _make_again(self, items: Sequence[Item]) -> None:
        for item in items:
            self._in_thread(item, partial(_make_again, item))

    def _in_thread(self, item: Item, act: Callable[[], int]) -> None:
        """Do something for a call, in the context of its task."""

        def run() -> None:
            try:
                job_id = item.context.run(_act_within, item.deadline, act)
            except BaseException as error:
                _tell([(item, error)])
            else:
                _tell([(item, job_id)])

        # Its task may have been cancelled meanwhile.
        if not item.future.done():
            self._threads.submit(run)


def _act_within(deadline: Deadline, act: Callable[[], int]) -> int:
    with keeping(deadline):
        return act()


def _make_again(item: Item) -> int:
    """In a thread: make a call as a plain one."""
    return item.again()[0]


def _group_alike(items: Sequence[Item]) -> list[list[Item]]:
    """Calls of the same task with the same options, in the order in which they came."""
    alike: dict[tuple[int, int, bool], list[Item]] = {}
    for item in items:
        rows = item.rows
        alike.setdefault((id(rows.task), id(rows.options), rows.keys is None), []).append(item)
    return list(alike.values())


def _tell(told: Sequence[tuple[Item, int | BaseException]]) -> None:
    """Tell each loop once what became of its calls."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[int], int | BaseException]]] = {}
    for item, outcome in told:
        by_loop.setdefault(item.loop, []).append((item.future, outcome))
    for loop, outcomes in by_loop.items():
        # A loop that is closed has nobody who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_set_outcomes, outcomes)


def _set_outcomes(outcomes: Sequence[tuple[asyncio.Future[int], int | BaseException]]) -> None:
    for future, outcome in outcomes:
        # One that is done was cancelled.
        if future.done():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
