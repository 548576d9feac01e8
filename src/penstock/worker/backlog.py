"""The line: jobs that were claimed from one database and not started yet, in order, and those that ended.

Slots take from its head: with one slot, jobs start exactly in the order in which they were claimed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from penstock.clock import system
from penstock.policy.slot_shares import Share
from penstock.worker.claimed_job import HeldJob
from penstock.worker.context import Workplace
from penstock.worker.slot_pool import Floor
from penstock.worker.split_leases import OwnLeases

__all__ = ["SETTLED_TOGETHER", "Line"]

# With fast handlers, so many ends at least are settled in one turn while there is work in line.
SETTLED_TOGETHER = 4096


class Line:
    """Fed by its site's conductor, taken from by the slots of the floor."""

    def __init__(self, floor: Floor, workplace: Workplace, signal: Callable[[], None]) -> None:
        self.floor = floor
        self.workplace = workplace
        # Calls the conductor.
        self.signal = signal
        # Nanoseconds of the performance counter until which the lease certainly holds.
        self.valid_until = 0
        # Jobs somebody wants stopped: they are not started.
        self.asked_to_stop: set[int] = set()
        # Jobs that ended and await settling; appended by slots, drained by the conductor.
        self.done: deque[HeldJob] = deque()
        # Jobs taken from handlers that do not come back, why, and where the handler was; drained by the conductor.
        self.taken_away: deque[tuple[HeldJob, BaseException, str]] = deque()
        self.own_leases = OwnLeases(workplace, self.end)
        # Whether handlers are fast: ends are then signalled only when the line runs dry, and taken by the bunch.
        self.is_fast = False
        # Guarded by the floor's lock.
        self.waiting: deque[HeldJob] = deque()
        self._lock = floor.lock
        self.share: Share
        floor.join(self)

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def running(self) -> int:
        """Slots at work for this line."""
        return self.share.running

    @property
    def unstarted(self) -> int:
        """Jobs that wait, also those that a slot has in hand behind the one it runs."""
        return len(self.waiting) + sum(len(bunch) for bunch in self._bunches())

    def active(self) -> list[HeldJob]:
        """The jobs whose handlers run now, also those that were taken away from handlers left behind."""
        with self._lock:
            slots = (*self.floor.slots, *self.floor.left_behind)
            return [job for slot in slots if (job := slot.current) is not None and slot.line is self]

    def oldest(self) -> float:
        """When the worker got the job that has waited longest; now, where none waits."""
        with self._lock:
            heads = [line[0] for line in (self.waiting, *self._bunches()) if line]
            return min([job.lease.taken_at for job in heads], default=system.monotonic())

    def waiting_leases(self) -> dict[int, float]:
        """The leases of jobs that have not started, and when the worker got them."""
        with self._lock:
            lines = (self.waiting, *self._bunches())
            return {job.lease.id: job.lease.taken_at for line in lines for job in line}

    def feed(self, jobs: Iterable[HeldJob], threads: int) -> None:
        """Add jobs at the end and wake so many idle threads."""
        with self._lock:
            self.waiting.extend(jobs)
            self.floor.wake(self, threads)

    def prod(self) -> None:
        """Those at work do not get through the line: take back their bunches and wake whoever is idle."""
        with self._lock:
            for slot in self.floor.slots:
                while slot.bunch and slot.line is self:
                    try:
                        self.waiting.appendleft(slot.bunch.pop())
                    except IndexError:
                        break
            self.floor.wake(self, len(self.waiting))

    def end(self, job: HeldJob) -> None:
        """Hand in a job that ended."""
        self.done.append(job)
        if not self.is_fast or not self.waiting or len(self.done) == SETTLED_TOGETHER:
            self.signal()

    def put_back(self, job: HeldJob) -> None:
        """Return a job that could not start to the head of the line."""
        with self._lock:
            self.waiting.appendleft(job)

    def withdraw(self, which: Callable[[HeldJob], bool] = lambda _: True) -> list[HeldJob]:
        """Take back jobs that have not started."""
        self.prod()
        with self._lock:
            taken = [job for job in self.waiting if which(job)]
            if taken:
                gone = set(map(id, taken))
                self.waiting = deque(job for job in self.waiting if id(job) not in gone)
                self.floor.call()
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

    def _bunches(self) -> list[deque[HeldJob]]:
        return [slot.bunch for slot in list(self.floor.slots) if slot.bunch and slot.line is self]
