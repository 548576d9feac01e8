"""The backlog: jobs that were taken from one database and have not started, in order; and those that ended since.

Slots take from its head: with one slot, jobs start exactly in the order in which they were taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf

from penstock.clock import system
from penstock.errors import PenstockError
from penstock.policy.claim_size import bunch_size
from penstock.policy.slot_shares import Share
from penstock.worker.claimed_job import ClaimedBatch, ClaimedJob
from penstock.worker.claimed_run import ClaimedRun
from penstock.worker.context import Registration
from penstock.worker.slot_pool import SlotPool
from penstock.worker.split_leases import SplitLeases

__all__ = ["FAST_TICK_SECONDS", "SETTLED_TOGETHER", "Backlog"]

# While handlers are fast and more jobs wait, a turn begins when so many have ended.
SETTLED_TOGETHER = 4096
# Handlers that take less are fast.
FAST_SECONDS = 0.001
# So long ends wait to be settled together, while more starts without a turn. Of a run several end in that time where
# handlers take less.
FAST_TICK_SECONDS = 0.005


def _raise(error: PenstockError) -> None:
    raise error


class Backlog:
    """Filled by the conductor of its database, emptied by the slots of the pool."""

    def __init__(
        self,
        slot_pool: SlotPool,
        registration: Registration,
        signal: Callable[[], None],
        end_worker: Callable[[PenstockError], None] = _raise,
    ) -> None:
        self.slot_pool = slot_pool
        # Ends the worker, gently, with an error: a handler is not what it was declared to be.
        self.end_worker = end_worker
        self.registration = registration
        # Wakes the conductor.
        self.signal = signal
        # Nanoseconds of the performance counter until which the worker certainly has its leases.
        self.valid_until = 0
        # Jobs somebody wants stopped: they are not started.
        self.asked_to_stop: set[int] = set()
        # Jobs that ended and await settling; appended by slots, drained by the conductor.
        self.done: deque[ClaimedJob] = deque()
        # Jobs of runs that are over, which go back unstarted; drained by the conductor.
        self.returned: deque[ClaimedJob] = deque()
        # Jobs and batches taken from handlers that do not come back, why, and where those were; drained by the
        # conductor.
        self.taken_away: deque[tuple[ClaimedJob, BaseException, str]] = deque()
        self.split_leases = SplitLeases(registration, self.end)
        # Whether a queue that is served has runs, or had.
        self.has_runs = False
        # While handlers are fast, slots take several jobs at once, and ends wake the conductor only when none waits.
        self.is_fast = False
        # The same of ends in a run that has more.
        self._gathers_runs = False
        # How many jobs a slot takes at once.
        self.bunch = 1
        # Guarded by the pool's lock.
        self.waiting: deque[ClaimedJob] = deque()
        # The runs that wait or have a slot, and those that are over and may get more jobs all the same.
        self.runs: dict[tuple[int, bytes], ClaimedRun] = {}
        self._lock = slot_pool.lock
        self.share: Share
        slot_pool.join(self)

    def __len__(self) -> int:
        return len(self.waiting)

    def expect(self, job_seconds: float | None) -> None:
        """By the conductor: how long jobs took of late; None where none has run yet."""
        self.share.job_seconds = inf if job_seconds is None else job_seconds
        self.is_fast = job_seconds is not None and job_seconds < FAST_SECONDS
        self._gathers_runs = job_seconds is not None and job_seconds < FAST_TICK_SECONDS
        self.bunch = bunch_size(job_seconds) if self.is_fast and job_seconds is not None else 1

    @property
    def waiting_jobs(self) -> int:
        """How many jobs wait; of a run each counts, of a batch one."""
        if not self.has_runs:
            return len(self.waiting)
        with self._lock:
            return sum(len(job.members) if isinstance(job, ClaimedRun) else 1 for job in self.waiting)

    @property
    def running(self) -> int:
        """Slots that run jobs of this backlog."""
        return self.share.running

    @property
    def unstarted(self) -> int:
        """Jobs that wait, also those that a slot has in hand behind the one it runs."""
        return len(self.waiting) + sum(len(bunch) for bunch in self._bunches())

    def active(self) -> list[ClaimedJob]:
        """The jobs whose handlers run now, also those that were taken away from handlers left behind."""
        with self._lock:
            slots = (*self.slot_pool.slots, *self.slot_pool.left_behind)
            at_work = [job for slot in slots if (job := slot.current) is not None and slot.backlog is self]
            return _list_jobs(at_work)

    def oldest(self) -> float:
        """When the worker got the job that has waited longest; now, where none waits."""
        with self._lock:
            heads = [jobs[0] for jobs in (self.waiting, *self._bunches()) if jobs]
            return min([job.lease.taken_at for job in heads], default=system.monotonic())

    def waiting_leases(self) -> dict[int, float]:
        """The leases of jobs that have not started, and when the worker got them."""
        with self._lock:
            waiting = (self.waiting, *self._bunches())
            return {job.lease.id: job.lease.taken_at for jobs in waiting for job in _list_jobs(jobs)}

    def feed(self, jobs: Sequence[ClaimedJob], threads: int) -> int:
        """Add jobs at the end and wake so many idle threads; how many want a slot of their own."""
        with self._lock:
            if self.has_runs:
                jobs = self._feed_runs(jobs)
            self.waiting.extend(jobs)
            self.slot_pool.wake(self, threads)
            return len(jobs)

    def _feed_runs(self, jobs: Iterable[ClaimedJob]) -> list[ClaimedJob]:
        """Let the jobs of runs that are here follow those they have; the others."""
        others: list[ClaimedJob] = []
        for job in jobs:
            if not isinstance(job, ClaimedRun):
                others.append(job)
            elif (known := self.runs.get(job.number)) is None:
                self.runs[job.number] = job
                others.append(job)
            elif known.is_over:
                self.returned.extend(job.take_unstarted())
                self.signal()
            else:
                known.add(job.take_unstarted())
        return others

    def take_back_bunches(self) -> None:
        """Slots at work are too slow for the jobs they took along: put those back, and wake idle threads for them."""
        with self._lock:
            for slot in self.slot_pool.slots:
                if slot.bunch and slot.backlog is self and slot.run is None:
                    self.waiting.extendleft(reversed(slot.take_back()))
            self.slot_pool.wake(self, len(self.waiting))

    def end(self, job: ClaimedJob) -> None:
        """Hand in a job that ended. Where its run is over by that, the rest goes back."""
        run = job.run
        if run is None:
            self.done.append(job)
            is_gathered = self.is_fast and bool(self.waiting)
        else:
            run.unsettled.add(job.id)
            self.done.append(job)
            if not run.goes_on(job):
                self.end_run(run)
            is_gathered = (self.is_fast and bool(self.waiting)) or (self._gathers_runs and not run.is_half_empty)
        if not is_gathered or len(self.done) == SETTLED_TOGETHER:
            self.signal()

    @property
    def gathers(self) -> bool:
        """By the conductor: whether ends wait for a tick, since more starts without a turn; others signal."""
        if self.is_fast and self.waiting:
            return True
        return self._gathers_runs and any(not run.is_half_empty for run in list(self.runs.values()))

    def end_run(self, run: ClaimedRun) -> None:
        """Let nothing of a run start any more: what has not goes back."""
        with self._lock:
            if not run.is_over:
                self.returned.extend(run.take_unstarted())

    def take_over_runs(self) -> list[tuple[int, bytes]]:
        """By the conductor, before it takes more: the keys of runs that are over, by partition. All that was taken for
        them has come by then, and nothing more is taken.
        """
        if not self.runs:
            return []
        with self._lock:
            over = [number for number, run in self.runs.items() if run.is_over]
            for number in over:
                del self.runs[number]
            return over

    def forget_runs(self) -> None:
        """All leases are lost: nothing more of a run comes, and nothing of it can be given back."""
        with self._lock:
            self.runs.clear()
            self.returned.clear()

    def note_settled(self, jobs: Iterable[ClaimedJob]) -> None:
        """By the conductor: the ends of these are written."""
        if self.has_runs:
            for job in jobs:
                if job.run is not None:
                    job.run.note_settled(job.id)

    def end_batch(self, batch: ClaimedBatch) -> None:
        """Hand in the jobs of a batch that ended."""
        self.done.extend(batch.members)
        self.signal()

    def put_back(self, job: ClaimedJob) -> None:
        """Return a job that could not start to the head; with what follows it in its run."""
        with self._lock:
            run = job.run
            if run is None:
                self.waiting.appendleft(job)
            elif run.slot is not None and not run.is_over:
                slot = run.slot
                run.members = [job, *slot.take_back()]
                run.slot = slot.run = None
                self.waiting.appendleft(run)
            else:
                self.returned.append(job)
                self.signal()

    def withdraw(self, which: Callable[[ClaimedJob], bool] = lambda _: True) -> list[ClaimedJob]:
        """Take back jobs that have not started; those of a batch, each for itself."""
        self.take_back_bunches()
        with self._lock:
            taken = self._cut_runs(which) if self.has_runs else []
            plain = [job for job in _list_jobs(self.waiting) if job.run is None and which(job)]
            taken += plain
            if taken:
                gone = set(map(id, plain))
                for job in self.waiting:
                    if job.members is not None and not isinstance(job, ClaimedRun):
                        job.members = [member for member in job.members if id(member) not in gone]
                self.waiting = deque(job for job in self.waiting if id(job) not in gone and job.members != [])
                self.slot_pool.signal_hungry()
            return taken

    def withdraw_runs(self, began_before: int) -> list[ClaimedJob]:
        """Take back what has not started of runs that have had their slot since before that tick."""
        taken: list[ClaimedJob] = []
        with self._lock:
            for run in list(self.runs.values()):
                if run.slot is not None and not run.is_over and run.slot.began < began_before:
                    taken += run.take_unstarted()
        return taken

    def _cut_runs(self, which: Callable[[ClaimedJob], bool]) -> list[ClaimedJob]:
        """Take back what has not started of runs that have such a job: none may pass it."""
        taken: list[ClaimedJob] = []
        for run in list(self.runs.values()):
            if run.is_over or not any(which(job) for job in run.unstarted):
                continue
            jobs = run.take_unstarted()
            taken += [job for job in jobs if which(job)]
            self.returned.extend(job for job in jobs if not which(job))
        return taken

    def withdraw_late(self, taken_before: float) -> list[ClaimedJob]:
        """Take back what has waited since before then; where starts have an order, also what would pass it."""
        partitions: set[int] = set()

        def is_late(job: ClaimedJob) -> bool:
            lease = job.lease
            if lease.taken_at < taken_before:
                partitions.add(lease.partition_id)
                return True
            return lease.starts_in_order and lease.partition_id in partitions

        return self.withdraw(is_late)

    def beside_in_runs(self) -> list[tuple[int, int]]:
        """By partition: how many jobs of a run it has, but for one."""
        if not self.runs:
            return []
        with self._lock:
            return [
                (run.lease.partition_id, len(run.unsettled) + len(run.unstarted) - (run.slot is None))
                for run in self.runs.values()
                if not run.is_over
            ]

    def _bunches(self) -> list[list[ClaimedJob]]:
        """Copies: slots go on taking from their bunches."""
        bunches = [list(slot.bunch) for slot in list(self.slot_pool.slots) if slot.bunch and slot.backlog is self]
        return [bunch for bunch in bunches if bunch]


def _list_jobs(jobs: Iterable[ClaimedJob]) -> list[ClaimedJob]:
    """The jobs themselves, where some of these are batches."""
    return [each for job in jobs for each in (job.members if job.members is not None else (job,))]
