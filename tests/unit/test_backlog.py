"""The backlog of jobs that wait in a worker: which go back."""

from __future__ import annotations

from penstock.storage import Database
from penstock.storage.work.leases import Lease
from penstock.task import define
from penstock.worker.backlog import Backlog
from penstock.worker.claimed_job import ClaimedJob
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
