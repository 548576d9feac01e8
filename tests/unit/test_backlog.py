"""The backlog of jobs that wait in a worker: which go back, and which ends are settled at once."""

from __future__ import annotations

from penstock.storage import Database
from penstock.storage.work.leases import Lease
from penstock.task import define
from penstock.task.verdict import Verdict
from penstock.worker.backlog import Backlog
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.claimed_run import ClaimedRun
from penstock.worker.context import Registration
from penstock.worker.slot_pool import SlotPool
from penstock.worker.stop_request import StopRequest


def claimed(number: int, partition: int, taken_at: float, *, starts_in_order: bool) -> ClaimedJob:
    lease = Lease(number, partition, 5, number, number, 0, 1, None, 1, 0, False, "", 0.0)
    lease.taken_at, lease.starts_in_order = taken_at, starts_in_order
    task = define("q", lambda: None, name="t")
    return ClaimedJob(lease, task, number * 1024, "{}", None, None)


def test_what_waited_for_long_goes_back_and_where_starts_have_an_order_what_is_behind_it() -> None:
    registration = Registration(Database("postgresql://nowhere"), "", lambda *_: None, StopRequest())
    backlog = Backlog(SlotPool(2, lambda _: None), registration, lambda: None)
    jobs = [
        claimed(1, 1, 5.0, starts_in_order=True),
        claimed(2, 1, 1.0, starts_in_order=True),
        claimed(3, 1, 5.0, starts_in_order=True),
        claimed(4, 2, 5.0, starts_in_order=True),
        claimed(5, 3, 1.0, starts_in_order=False),
        claimed(6, 3, 5.0, starts_in_order=False),
    ]
    backlog.feed(jobs, 0)
    assert [job.lease.id for job in backlog.withdraw_late(2.0)] == [2, 3, 5]
    assert len(backlog) == 3


class Running:
    """A backlog whose one slot has a run of so many jobs, and how often its conductor was signalled."""

    def __init__(self, size: int, job_seconds: float) -> None:
        registration = Registration(Database("postgresql://nowhere"), "", lambda *_: None, StopRequest())
        self.pool = SlotPool(1, lambda _: None)
        self.backlog = Backlog(self.pool, registration, self._note)
        self.backlog.valid_until = 1 << 62
        self.backlog.has_runs = True
        self.backlog.expect(job_seconds)
        self.signals = 0
        self.slot = self.pool.add_slot(lambda: None)
        assert self.feed(size, b"a") == 1
        assert self.pool.take(self.slot)

    def feed(self, size: int, key: bytes) -> int:
        jobs = [claimed(number + 1, 1, 0.0, starts_in_order=False) for number in range(size)]
        for job in jobs:
            job.key = key
        return self.backlog.feed([ClaimedRun.of(jobs, halts_on_dead=False)], 0)

    def end_next(self, verdict: Verdict | None = None) -> bool:
        """Whether that signals."""
        before = self.signals
        job = self.slot.next()
        assert job is not None
        job.verdict = verdict
        self.backlog.end(job)
        return self.signals > before

    def _note(self) -> None:
        self.signals += 1


def test_ends_in_a_run_of_short_jobs_are_gathered_until_more_should_follow() -> None:
    running = Running(10, 0.004)
    assert [running.end_next() for _ in range(4)] == [False] * 4
    assert running.backlog.gathers
    assert running.end_next()
    assert not running.backlog.gathers
    # What follows at its tail wants no slot, and lets its ends be gathered again.
    assert running.feed(20, b"a") == 0
    assert running.backlog.gathers
    assert not running.end_next()


def test_an_end_that_somebody_waits_for_is_settled_at_once() -> None:
    slow = Running(10, 0.006)
    assert slow.end_next()
    assert not slow.backlog.gathers
    failing = Running(10, 0.004)
    assert failing.end_next(Verdict("retry", "it raised", due_in=1.0))
    alone = Running(1, 0.004)
    assert alone.end_next()
