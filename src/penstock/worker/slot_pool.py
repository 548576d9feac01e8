"""The floor: the slots that run a worker's jobs, whichever of its databases they came from.

Threads and lanes of the event loop each have a slot and take from the head of a line; there is a line for each site.
Never more than `concurrency` slots are at work, whatever runs them. Where several lines have jobs that may start, the
one with the fewest slots at work comes first.

A slot takes a small bunch at once when handlers are fast, so that the lock is not paid for each job. If the handler of
one then takes long after all, the rest of its bunch is put back at the head.

A slot whose handler does not come back is retired: its job is taken away, another thread or lane takes its place, and
what had it is left behind. When that returns, if ever, it ends.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.clock import system, ticks
from penstock.policy.slot_shares import Grant, Slots
from penstock.worker.claimed_job import HeldJob

if TYPE_CHECKING:
    from penstock.worker.backlog import Line

__all__ = ["Floor", "Slot"]

BUNCH = 32


class Slot:
    """What one thread or lane has in hand: the job it runs, and those it will run next, all of one line.

    Made by the thread that uses it. `replace` has another take its place.
    """

    __slots__ = ("bunch", "current", "is_retired", "line", "lock", "replace", "thread_id")

    # Unset before its first bunch.
    line: Line

    def __init__(self, replace: Callable[[], None]) -> None:
        self.current: HeldJob | None = None
        self.bunch: deque[HeldJob] = deque()
        self.replace = replace
        self.thread_id = threading.get_ident()
        self.is_retired = False
        # Held to take the next job, and to retire: else a job of the bunch could start here and elsewhere.
        self.lock = threading.Lock()

    def next(self) -> HeldJob | None:
        """The next job of the bunch; None where it is empty, or was taken back."""
        with self.lock:
            try:
                job = self.current = self.bunch.popleft()
            except IndexError:
                return None
            return job


class Floor:
    """Shared by all lines, and by the threads and lanes that take from them. Nothing here waits for a database."""

    def __init__(self, concurrency: int, wake_lanes: Callable[[int], None]) -> None:
        self.concurrency = concurrency
        # Slots at work.
        self.running = 0
        self.slots: list[Slot] = []
        # Retired slots whose handlers have not returned.
        self.left_behind: set[Slot] = set()
        # Set by whoever watches the event loop: nothing may start on it.
        self.is_loop_blocked = False
        self.lines: list[Line] = []
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._policy = Slots(concurrency)
        self._idle_threads = 0
        self._wake_lanes = wake_lanes
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def in_hand(self) -> int:
        """Jobs that run or wait, of all lines."""
        return self.running + sum(len(line) for line in self.lines)

    def join(self, line: Line) -> None:
        """Take in one more line."""
        with self.lock:
            line.share = self._policy.join()
            self.lines = [*self.lines, line]

    def slot(self, replace: Callable[[], None]) -> Slot:
        """A slot for a new thread or lane, which calls this."""
        slot = Slot(replace)
        with self.lock:
            self.slots.append(slot)
        return slot

    def take_away(self, slot: Slot, job: HeldJob, error: BaseException, where: str = "") -> bool:
        """Take a job from a handler that does not come back, unless it just has: the slot is retired, and replaced.

        The job's end is written by its conductor; the rest of the bunch goes back.
        """
        with self.lock, slot.lock:
            if slot.is_retired or slot.current is not job or job.ended != job.started:
                return False
            slot.line.taken_away.append((job, error, where))
            self._retire(slot)
            # What it runs stays known: a transaction of the handler's may still hold the job's lease.
            slot.current = job
            self.left_behind.add(slot)
        slot.line.signal()
        slot.replace()
        return True

    def drop(self, slot: Slot) -> None:
        """Give up a slot whose lane is gone; the rest of its bunch goes back."""
        with self.lock, slot.lock:
            self.left_behind.discard(slot)
            if not slot.is_retired:
                self._retire(slot)

    def _retire(self, slot: Slot) -> None:
        slot.is_retired = True
        self.slots.remove(slot)
        if slot.current is not None:
            self._rest(slot)
            slot.line.waiting.extendleft(reversed(slot.bunch))
            slot.bunch.clear()
            self.wake(slot.line, len(slot.line))

    def take(self, slot: Slot) -> bool:
        """For a thread: fill the slot's bunch, waiting until there is something; False where it has to end: the floor
        is closed, or the slot was retired.
        """
        with self.lock:
            if slot.is_retired:
                self.left_behind.discard(slot)
                return False
            self._rest(slot)
            while not self._is_closed:
                for line in self._startable():
                    if not line.waiting[0].task.is_async:
                        self._fill(slot, line)
                        return True
                    self._wake_lanes(1)
                self._idle_threads += 1
                self._changed.wait()
                self._idle_threads -= 1
            return False

    def take_async(self, slot: Slot) -> bool:
        """For a lane of the event loop: the same without waiting; False where it has to wait to be woken, or to end."""
        with self.lock:
            if slot.is_retired:
                self.left_behind.discard(slot)
                return False
            self._rest(slot)
            if not self._is_closed:
                for line in self._startable():
                    if line.waiting[0].task.is_async:
                        self._fill(slot, line)
                        return True
                    self._changed.notify()
            return False

    def wake(self, line: Line, threads: int) -> None:
        """Under the lock: let so many idle threads look, and lanes where the line's head is theirs."""
        if line.waiting and line.waiting[0].task.is_async:
            self._wake_lanes(len(line.waiting))
        if self._idle_threads:
            self._changed.notify(max(threads, 1))

    def close(self) -> None:
        """Let every thread and lane end."""
        with self.lock:
            self._is_closed = True
            self._changed.notify_all()
        self._wake_lanes(self.concurrency)

    def grantable(self, line: Line) -> Grant:
        """How many slots a line could claim for now."""
        if len(self.lines) == 1:
            return Grant(max(self.concurrency - self.running - len(line.waiting), 0), self.concurrency)
        with self.lock:
            self._count()
            return self._policy.grantable(line.share, system.monotonic())

    def ask(self, line: Line) -> Grant:
        """The same, and reserve them until `claimed`."""
        if len(self.lines) == 1:
            return self.grantable(line)
        with self.lock:
            self._count()
            return self._policy.ask(line.share, system.monotonic())

    def claimed(self, line: Line, *, is_dry: bool) -> None:
        """What a line's claim brought is in line by now: let others have the rest."""
        if len(self.lines) > 1:
            with self.lock:
                self._policy.claimed(line.share, system.monotonic(), is_dry=is_dry)
                self.call()

    def patience(self, line: Line) -> float | None:
        """Seconds after which a line that wants slots should ask again unasked."""
        if len(self.lines) == 1:
            return None
        with self.lock:
            return self._policy.patience(line.share, system.monotonic())

    def call(self) -> None:
        """Under the lock: tell the lines that could have slots now and want them."""
        if any(line.share.is_hungry for line in self.lines):
            self._count()
            called = self._policy.called(system.monotonic())
            for line in self.lines:
                if line.share in called:
                    line.signal()

    def _startable(self) -> list[Line]:
        """The lines whose head may start, in turn; a job starts only while its site's lease is known to be valid."""
        if self.running >= self.concurrency:
            return []
        now = ticks()
        lines = [line for line in self.lines if line.waiting and now < line.valid_until]
        if len(lines) > 1:
            of_share = {line.share: line for line in lines}
            lines = [of_share[share] for share in self._policy.in_turn(of_share)]
        return lines

    def _rest(self, slot: Slot) -> None:
        if slot.current is not None:
            slot.current = None
            self.running -= 1
            slot.line.share.running -= 1
            if len(self.lines) > 1:
                self.call()

    def _fill(self, slot: Slot, line: Line) -> None:
        self.running += 1
        line.share.running += 1
        self._policy.note_start(line.share)
        waiting, bunch = line.waiting, slot.bunch
        slot.line = line
        # Not more than a fair share: the other slots want something too.
        share = min(BUNCH, len(waiting) // self.concurrency) if line.is_fast else 1
        bunch.append(waiting.popleft())
        is_async = bunch[0].task.is_async
        # Where starts have an order, one in a bunch would start after those that another slot takes.
        if bunch[0].lease.is_strict:
            share = 1
        while len(bunch) < share and waiting[0].task.is_async == is_async and not waiting[0].lease.is_strict:
            bunch.append(waiting.popleft())
        # Somebody may take the whole bunch back before it is begun: the slot counts as at work by what it runs.
        slot.current = bunch[0]

    def _count(self) -> None:
        now = ticks()
        for line in self.lines:
            # What may not start, since its database was silent for too long, keeps no slot from others.
            line.share.waiting = len(line.waiting) if now < line.valid_until else 0
