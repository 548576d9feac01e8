"""The line: jobs a worker has claimed and not started yet, in order, and the count of those that run.

Threads and the event loop take from its head; never more than `concurrency` run at once, whatever runs them, and a
job starts only while the worker's lease is known to be valid. The head decides who may take next: with one slot, jobs
start exactly in the order in which they were claimed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from penstock.worker.job import HeldJob

__all__ = ["Line"]


class Line:
    """Shared by the conductor, which feeds it, and the runners, which take from it."""

    def __init__(self, concurrency: int, wake_lanes: Callable[[int], None], signal: Callable[[], None]) -> None:
        self.concurrency = concurrency
        self.running = 0
        # Monotonic seconds until which the lease certainly holds.
        self.valid_until = 0.0
        # Jobs that ended and await settling; appended by runners, drained by the conductor.
        self.done: deque[HeldJob] = deque()
        # Whether each end is to be signalled at once, or (fast handlers) only when the line runs dry.
        self.signals_each_end = True
        # Jobs that run now, by id.
        self.active: dict[int, HeldJob] = {}
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
    def free_slots(self) -> int:
        """Slots that neither a running nor a waiting job will use."""
        return self.concurrency - self.running - len(self._waiting)

    def feed(self, jobs: Iterable[HeldJob], threads: int) -> None:
        """Add jobs at the end and wake so many idle threads."""
        with self._lock:
            self._waiting.extend(jobs)
            self._wake(threads)

    def prod(self) -> None:
        """Wake whoever is idle: those at work do not get through the line."""
        with self._lock:
            self._wake(len(self._waiting))

    def take(self, ended: HeldJob | None) -> HeldJob | None:
        """For a thread: hand in what ended, wait for the next job; None when the line is closed."""
        with self._lock:
            if ended is not None:
                self._hand_in(ended)
            while not self._is_closed:
                if self._may_start():
                    if not self._waiting[0].task.is_async:
                        return self._start_next()
                    self._wake_lanes(1)
                self._idle_threads += 1
                self._changed.wait()
                self._idle_threads -= 1
            return None

    def take_async(self, ended: HeldJob | None) -> HeldJob | None:
        """For a lane of the event loop: the next job, or None where it has to wait to be woken."""
        with self._lock:
            if ended is not None:
                self._hand_in(ended)
            if self._may_start():
                if self._waiting[0].task.is_async:
                    return self._start_next()
                self._changed.notify()
            return None

    def withdraw(self, which: Callable[[HeldJob], bool] = lambda _: True) -> list[HeldJob]:
        """Take back jobs that have not started."""
        with self._lock:
            taken = [job for job in self._waiting if which(job)]
            if taken:
                gone = set(map(id, taken))
                self._waiting = deque(job for job in self._waiting if id(job) not in gone)
            return taken

    def close(self) -> None:
        """Let every runner end."""
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()
        self._wake_lanes(self.concurrency)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def _may_start(self) -> bool:
        return bool(self._waiting) and self.running < self.concurrency and time.monotonic() < self.valid_until

    def _start_next(self) -> HeldJob:
        job = self._waiting.popleft()
        self.running += 1
        self.active[job.id] = job
        return job

    def _hand_in(self, ended: HeldJob) -> None:
        self.running -= 1
        if self.active.get(ended.id) is ended:
            del self.active[ended.id]
        self.done.append(ended)
        if self.signals_each_end or not self._waiting:
            self._signal()

    def _wake(self, threads: int) -> None:
        if self._waiting and self._waiting[0].task.is_async:
            self._wake_lanes(len(self._waiting))
        if self._idle_threads:
            self._changed.notify(max(threads, 1))
