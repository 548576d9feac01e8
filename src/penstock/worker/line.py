"""The line: jobs a worker has claimed and not started yet, in order, and the slots that run them.

Threads and lanes of the event loop each have a slot and take from the head of the line; never more than `concurrency`
slots are at work, whatever runs them, and a job starts only while the worker's lease is known to be valid. The head
decides who may take next: with one slot, jobs start exactly in the order in which they were claimed.

A slot takes a small bunch at once when handlers are fast, so that the lock is not paid for each job. If the handler of
one then takes long after all, the rest of its bunch is put back at the head.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from penstock.clock import system, ticks
from penstock.worker.job import HeldJob

__all__ = ["SETTLED_TOGETHER", "Line", "Slot"]

# With fast handlers, so many ends at least are settled in one turn while there is work in line.
SETTLED_TOGETHER = 4096
BUNCH = 32


class Slot:
    """What one thread or lane has in hand: the job it runs, and those it will run next."""

    __slots__ = ("bunch", "current")

    def __init__(self) -> None:
        self.current: HeldJob | None = None
        self.bunch: deque[HeldJob] = deque()

    def next(self) -> HeldJob | None:
        """The next job of the bunch; None where it is empty, or was taken back."""
        try:
            job = self.current = self.bunch.popleft()
        except IndexError:
            return None
        return job


class Line:
    """Shared by the conductor, which feeds it, and the slots, which take from it."""

    def __init__(self, concurrency: int, wake_lanes: Callable[[int], None], signal: Callable[[], None]) -> None:
        self.concurrency = concurrency
        # Slots at work.
        self.running = 0
        # Nanoseconds of the performance counter until which the lease certainly holds.
        self.valid_until = 0
        # Jobs somebody wants stopped: they are not started.
        self.asked_to_stop: set[int] = set()
        # Jobs that ended and await settling; appended by slots, drained by the conductor.
        self.done: deque[HeldJob] = deque()
        # Whether handlers are fast: ends are then signalled only when the line runs dry, and taken by the bunch.
        self.is_fast = False
        self._slots: list[Slot] = []
        self._waiting: deque[HeldJob] = deque()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._idle_threads = 0
        self._wake_lanes = wake_lanes
        self._signal = signal
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def unstarted(self) -> int:
        """Jobs that wait, also those that a slot has in hand behind the one it runs."""
        return len(self._waiting) + sum(len(slot.bunch) for slot in list(self._slots))

    @property
    def free_slots(self) -> int:
        """Slots that neither a running nor a waiting job will use."""
        return self.concurrency - self.running - len(self._waiting)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def slot(self) -> Slot:
        """A slot for a new thread or lane."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def active(self) -> list[HeldJob]:
        """The jobs that run now."""
        return [job for slot in list(self._slots) if (job := slot.current) is not None]

    def oldest(self) -> float:
        """When the worker got the job that has waited longest; now, where none waits."""
        with self._lock:
            heads = [line[0] for line in (self._waiting, *(slot.bunch for slot in self._slots)) if line]
            return min([job.lease.taken_at for job in heads], default=system.monotonic())

    def waiting_leases(self) -> dict[int, float]:
        """The leases of jobs that have not started, and when the worker got them."""
        with self._lock:
            bunches = [job for slot in self._slots for job in slot.bunch]
            return {job.lease.id: job.lease.taken_at for job in [*self._waiting, *bunches]}

    def retire(self, slot: Slot) -> None:
        """Give up a slot whose lane is gone; what it had in hand goes back."""
        with self._lock:
            self._rest(slot)
            self._waiting.extendleft(reversed(slot.bunch))
            slot.bunch.clear()
            self._slots.remove(slot)
            self._wake(len(self._waiting))

    def feed(self, jobs: Iterable[HeldJob], threads: int) -> None:
        """Add jobs at the end and wake so many idle threads."""
        with self._lock:
            self._waiting.extend(jobs)
            self._wake(threads)

    def prod(self) -> None:
        """Those at work do not get through the line: take back their bunches and wake whoever is idle."""
        with self._lock:
            for slot in self._slots:
                while slot.bunch:
                    try:
                        self._waiting.appendleft(slot.bunch.pop())
                    except IndexError:
                        break
            self._wake(len(self._waiting))

    def take(self, slot: Slot) -> bool:
        """For a thread: fill the slot's bunch, waiting until there is something; False when the line is closed."""
        with self._lock:
            self._rest(slot)
            while not self._is_closed:
                if self._may_start():
                    if not self._waiting[0].task.is_async:
                        self._fill(slot)
                        return True
                    self._wake_lanes(1)
                self._idle_threads += 1
                self._changed.wait()
                self._idle_threads -= 1
            return False

    def take_async(self, slot: Slot) -> bool:
        """For a lane of the event loop: the same without waiting; False where it has to wait to be woken."""
        with self._lock:
            self._rest(slot)
            if not self._is_closed and self._may_start():
                if self._waiting[0].task.is_async:
                    self._fill(slot)
                    return True
                self._changed.notify()
            return False

    def end(self, job: HeldJob) -> None:
        """Hand in a job that ended."""
        self.done.append(job)
        if not self.is_fast or not self._waiting or len(self.done) == SETTLED_TOGETHER:
            self._signal()

    def put_back(self, job: HeldJob) -> None:
        """Return a job that could not start to the head of the line."""
        with self._lock:
            self._waiting.appendleft(job)

    def withdraw(self, which: Callable[[HeldJob], bool] = lambda _: True) -> list[HeldJob]:
        """Take back jobs that have not started."""
        self.prod()
        with self._lock:
            taken = [job for job in self._waiting if which(job)]
            if taken:
                gone = set(map(id, taken))
                self._waiting = deque(job for job in self._waiting if id(job) not in gone)
            return taken

    def withdraw_late(self, taken_before: float) -> list[HeldJob]:
        """Take back what has waited since before then; where starts have an order, also what would pass it."""
        partitions: set[int] = set()

        def is_late(job: HeldJob) -> bool:
            lease = job.lease
            if lease.taken_at < taken_before:
                partitions.add(lease.partition_id)
                return True
            return lease.is_strict and lease.partition_id in partitions

        return self.withdraw(is_late)

    def close(self) -> None:
        """Let every thread and lane end."""
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()
        self._wake_lanes(self.concurrency)

    def _may_start(self) -> bool:
        return bool(self._waiting) and self.running < self.concurrency and ticks() < self.valid_until

    def _rest(self, slot: Slot) -> None:
        if slot.current is not None:
            slot.current = None
            self.running -= 1

    def _fill(self, slot: Slot) -> None:
        self.running += 1
        waiting, bunch = self._waiting, slot.bunch
        # Not more than a fair share: the other slots want something too.
        share = min(BUNCH, len(waiting) // self.concurrency) if self.is_fast else 1
        bunch.append(waiting.popleft())
        is_async = bunch[0].task.is_async
        # Where starts have an order, one in a bunch would start after those that another slot takes.
        if bunch[0].lease.is_strict:
            share = 1
        while len(bunch) < share and waiting[0].task.is_async == is_async and not waiting[0].lease.is_strict:
            bunch.append(waiting.popleft())
        # Somebody may take the whole bunch back before it is begun: the slot counts as at work by what it runs.
        slot.current = bunch[0]

    def _wake(self, threads: int) -> None:
        if self._waiting and self._waiting[0].task.is_async:
            self._wake_lanes(len(self._waiting))
        if self._idle_threads:
            self._changed.notify(max(threads, 1))
