"""The slot pool: the slots that run a worker's jobs, whichever of its databases they came from.

Threads and runners of the event loop each have a slot and take from the head of a backlog; each database has one.
Never more than `concurrency` slots are at work, whatever runs them. Where several backlogs have jobs that may start,
the one with the fewest slots at work comes first.

A slot takes a small bunch at once when handlers are fast, so that the lock is not paid for each job. If the handler of
one then takes long after all, the rest of its bunch is put back at the head. A run is a bunch that no other slot gets
anything of: its jobs are of one key, and only one of them may run.

A slot whose handler does not come back is retired: its job is taken away, and another thread or runner is started. The
one that had it is left behind, and ends when its handler returns, if ever.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.clock import system, ticks
from penstock.policy.slot_shares import Grant, SlotShares
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.claimed_run import ClaimedRun

if TYPE_CHECKING:
    from penstock.worker.backlog import Backlog

__all__ = ["Slot", "SlotPool"]


class Slot:
    """What one thread or runner works on: the job it runs, and its bunch of those to run next, all of one backlog.

    Made by the thread that uses it. `replace` starts another thread or runner when the slot is retired.
    """

    __slots__ = ("backlog", "began", "bunch", "current", "is_retired", "replace", "run", "thread_id")

    # Unset before its first bunch.
    backlog: Backlog

    def __init__(self, replace: Callable[[], None]) -> None:
        self.current: ClaimedJob | None = None
        self.bunch: deque[ClaimedJob] = deque()
        # The run that its bunch is, and since when.
        self.run: ClaimedRun | None = None
        self.began = 0
        self.replace = replace
        self.thread_id = threading.get_ident()
        self.is_retired = False

    def next(self) -> ClaimedJob | None:
        """The next job of the bunch; None where it is empty, or was taken back.

        No lock is paid for each job. Who takes one says so before it looks whether the slot is retired, and who retires
        a slot says so before he looks which job it has: one of them sees the other.
        """
        try:
            job = self.current = self.bunch.popleft()
        except IndexError:
            return None
        if self.is_retired and not self.backlog.slot_pool.may_go_on(self, job):
            return None
        return job

    def take_back(self) -> list[ClaimedJob]:
        """What of the bunch has not started, in order. Taken from the tail: what starts meanwhile stands before it."""
        taken: list[ClaimedJob] = []
        while self.bunch:
            try:
                taken.append(self.bunch.pop())
            except IndexError:
                break
        taken.reverse()
        return taken


class SlotPool:
    """Shared by all backlogs, and by the threads and runners that take from them. Nothing here waits for a database."""

    def __init__(self, concurrency: int, wake_runners: Callable[[int], None]) -> None:
        self.concurrency = concurrency
        # Slots at work.
        self.running = 0
        self.slots: list[Slot] = []
        # Retired slots whose handlers have not returned.
        self.left_behind: set[Slot] = set()
        # Set by whoever watches the event loop: nothing may start on it.
        self.is_loop_blocked = False
        self.backlogs: list[Backlog] = []
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._policy = SlotShares(concurrency)
        self._idle_threads = 0
        self._wake_runners = wake_runners
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def in_hand(self) -> int:
        """Jobs that run or wait, of all backlogs."""
        return self.running + sum(len(backlog) for backlog in self.backlogs)

    def join(self, backlog: Backlog) -> None:
        """Let one more backlog have a share of the slots."""
        with self.lock:
            backlog.share = self._policy.join()
            self.backlogs = [*self.backlogs, backlog]

    def add_slot(self, replace: Callable[[], None]) -> Slot:
        """A slot for a new thread or runner, which calls this."""
        slot = Slot(replace)
        with self.lock:
            self.slots.append(slot)
        return slot

    def take_away(self, slot: Slot, job: ClaimedJob, error: BaseException, where: str = "") -> bool:
        """Take a job from a handler that does not come back, unless it just has: the slot is retired, and replaced.

        The job's end is written by its conductor; the rest of the bunch goes back.
        """
        with self.lock:
            if slot.is_retired:
                return False
            slot.is_retired = True
            if slot.current is not job or job.ended != job.started:
                slot.is_retired = False
                return False
            slot.backlog.taken_away.append((job, error, where))
            self._retire(slot)
            # What it runs stays known: a transaction of the handler's may still hold the job's lease.
            slot.current = job
            self.left_behind.add(slot)
        slot.backlog.signal()
        slot.replace()
        return True

    def drop(self, slot: Slot) -> None:
        """Give up a slot whose runner is gone; the rest of its bunch goes back."""
        with self.lock:
            self.left_behind.discard(slot)
            if not slot.is_retired:
                self._retire(slot)

    def may_go_on(self, slot: Slot, job: ClaimedJob) -> bool:
        """For whoever took a job and then saw that its slot is retired, or about to be: wait for the decision. False:
        the job goes back.
        """
        with self.lock:
            if not slot.is_retired:
                return True
        slot.backlog.put_back(job)
        with self.lock:
            self.wake(slot.backlog, 1)
        return False

    def _retire(self, slot: Slot) -> None:
        slot.is_retired = True
        self.slots.remove(slot)
        if slot.current is not None:
            if slot.run is not None:
                slot.run.is_over = True
                slot.backlog.returned.extend(slot.take_back())
            else:
                slot.backlog.waiting.extendleft(reversed(slot.take_back()))
            self._mark_idle(slot)
            self.wake(slot.backlog, len(slot.backlog))

    def take(self, slot: Slot) -> bool:
        """For a thread: fill the slot's bunch, waiting until there is something; False where it has to end: the pool
        is closed, or the slot was retired.
        """
        with self.lock:
            if slot.is_retired:
                self.left_behind.discard(slot)
                return False
            if slot.bunch:
                return True  # More of its run came just now.
            self._mark_idle(slot)
            while not self._is_closed:
                for backlog in self._startable():
                    if not backlog.waiting[0].task.is_async:
                        self._fill(slot, backlog)
                        return True
                    self._wake_runners(1)
                self._idle_threads += 1
                self._changed.wait()
                self._idle_threads -= 1
            return False

    def take_async(self, slot: Slot) -> bool:
        """For a runner of the event loop: the same without waiting; False: it waits to be woken, or ends."""
        with self.lock:
            if slot.is_retired:
                self.left_behind.discard(slot)
                return False
            if slot.bunch:
                return True  # More of its run came just now.
            self._mark_idle(slot)
            if not self._is_closed:
                for backlog in self._startable():
                    if backlog.waiting[0].task.is_async:
                        self._fill(slot, backlog)
                        return True
                    self._changed.notify()
            return False

    def wake(self, backlog: Backlog, threads: int) -> None:
        """Under the lock: let so many idle threads look, and runners where the backlog's head is an async job."""
        if backlog.waiting and backlog.waiting[0].task.is_async:
            self._wake_runners(len(backlog.waiting))
        if self._idle_threads:
            self._changed.notify(max(threads, 1))

    def close(self) -> None:
        """Let every thread and runner end."""
        with self.lock:
            self._is_closed = True
            self._changed.notify_all()
        self._wake_runners(self.concurrency)

    def grantable(self, backlog: Backlog) -> Grant:
        """How many slots a backlog could have jobs taken for now."""
        if len(self.backlogs) == 1:
            return Grant(max(self.concurrency - self.running - len(backlog.waiting), 0), self.concurrency)
        with self.lock:
            self._count_waiting()
            return self._policy.grantable(backlog.share, system.monotonic())

    def ask(self, backlog: Backlog) -> Grant:
        """The same, and reserve them until `note_claimed`."""
        if len(self.backlogs) == 1:
            return self.grantable(backlog)
        with self.lock:
            self._count_waiting()
            return self._policy.ask(backlog.share, system.monotonic())

    def note_claimed(self, backlog: Backlog, *, is_dry: bool) -> None:
        """What a claim brought is in its backlog by now: let others have the rest of what was reserved."""
        if len(self.backlogs) > 1:
            with self.lock:
                self._policy.note_claimed(backlog.share, system.monotonic(), is_dry=is_dry)
                self.signal_hungry()

    def patience(self, backlog: Backlog) -> float | None:
        """Seconds after which a backlog's conductor that wants slots should ask again, if nobody wakes it before."""
        if len(self.backlogs) == 1:
            return None
        with self.lock:
            return self._policy.patience(backlog.share, system.monotonic())

    def signal_hungry(self) -> None:
        """Under the lock: wake the conductors that want slots and could have some now."""
        if any(backlog.share.is_hungry for backlog in self.backlogs):
            self._count_waiting()
            called = self._policy.call_hungry(system.monotonic())
            for backlog in self.backlogs:
                if backlog.share in called:
                    backlog.signal()

    def _startable(self) -> list[Backlog]:
        """The backlogs whose head may start, in turn; a job starts only while its lease is known to be valid."""
        if self.running >= self.concurrency:
            return []
        now = ticks()
        backlogs = [backlog for backlog in self.backlogs if backlog.waiting and now < backlog.valid_until]
        if len(backlogs) > 1:
            of_share = {backlog.share: backlog for backlog in backlogs}
            backlogs = [of_share[share] for share in self._policy.in_start_order(of_share)]
        return backlogs

    def _mark_idle(self, slot: Slot) -> None:
        if slot.run is not None:
            if not slot.run.is_over:
                # What of it still comes is a run of its own: everything before has ended.
                slot.backlog.runs.pop(slot.run.number, None)
            slot.run.slot = None
            slot.run = None
        if slot.current is not None:
            slot.current = None
            self.running -= 1
            slot.backlog.share.running -= 1
            if len(self.backlogs) > 1:
                self.signal_hungry()

    def _fill(self, slot: Slot, backlog: Backlog) -> None:
        self.running += 1
        backlog.share.running += 1
        self._policy.note_start(backlog.share)
        waiting, bunch = backlog.waiting, slot.bunch
        slot.backlog = backlog
        # Not more than a fair share: the other slots want something too.
        share = min(backlog.bunch, len(waiting) // self.concurrency)
        first = waiting.popleft()
        if isinstance(first, ClaimedRun):
            bunch.extend(first.members)
            first.members = []
            slot.run, slot.began, first.slot = first, ticks(), slot
            slot.current = bunch[0]
            return
        # A slot with a current job counts as at work. Set now: the bunch may be taken back before its first job starts.
        slot.current = first
        bunch.append(first)
        lease, is_async = first.lease, first.task.is_async
        # Where starts have an order, one in a bunch would start after those that another slot takes.
        if lease.starts_in_order:
            return
        for _ in range(share - 1):
            job = waiting.popleft()
            if (
                job.task.is_async != is_async
                or (job.lease is not lease and job.lease.starts_in_order)
                or (job.members is not None and isinstance(job, ClaimedRun))
            ):
                waiting.appendleft(job)
                return
            bunch.append(job)

    def _count_waiting(self) -> None:
        now = ticks()
        for backlog in self.backlogs:
            # What may not start, since its database was silent for too long, keeps no slot from others.
            backlog.share.waiting = len(backlog.waiting) if now < backlog.valid_until else 0
