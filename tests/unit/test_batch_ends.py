"""A batch whose handler returns while it is taken away: all of it times out, or none."""

from __future__ import annotations

from collections.abc import Callable

from penstock.clock import ticks
from penstock.storage import Database
from penstock.storage.work.leases import Lease
from penstock.task import define
from penstock.worker.backlog import Backlog
from penstock.worker.batch_run import end_batch
from penstock.worker.claimed_job import ClaimedBatch, ClaimedJob
from penstock.worker.context import Registration
from penstock.worker.ended_jobs import end_taken_away
from penstock.worker.slot_pool import SlotPool
from penstock.worker.stop_request import StopRequest


class WatchedJob(ClaimedJob):
    """Lets the test do something just before its end is noted."""

    before_end: Callable[[], None] | None = None

    def __setattr__(self, name: str, value: object) -> None:
        if name == "ended" and self.before_end is not None:
            self.before_end()
        super().__setattr__(name, value)


def watched(number: int) -> WatchedJob:
    lease = Lease(number, 1, 5, number, number, 0, 1, None, 1, 0, False, "", 0.0)
    return WatchedJob(lease, define("q", lambda items: None, name="t"), number * 1024, "{}", None, None)


def test_a_batch_that_ends_while_it_is_taken_away_times_out_as_a_whole_or_not_at_all() -> None:
    registration = Registration(Database("postgresql://nowhere"), "", lambda *_: None, StopRequest())
    pool = SlotPool(1, lambda _: None)
    backlog = Backlog(pool, registration, lambda: None)
    backlog.valid_until = ticks() + 3_600 * 10**9
    jobs = [watched(number) for number in (1, 2, 3)]
    backlog.feed([ClaimedBatch.of([*jobs])], 0)
    slot = pool.add_slot(lambda: None)
    assert pool.take(slot)
    batch = slot.next()
    assert isinstance(batch, ClaimedBatch)
    for job in (batch, *jobs):
        job.started = job.ended = ticks()
    assert pool.take_away(slot, batch, TimeoutError("it ran too long"))
    timed_out: list[ClaimedJob] = []

    # The conductor looks when one of the jobs has ended already.
    jobs[1].before_end = lambda: timed_out.extend(end_taken_away(backlog))
    end_batch(batch)
    backlog.end_batch(batch)

    assert [job.id for job in timed_out] == [job.id for job in jobs]
    assert all(job.is_abandoned for job in backlog.done)
