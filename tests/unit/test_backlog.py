"""The line of jobs that wait in a worker: which go back."""

from __future__ import annotations

from penstock.storage import Database
from penstock.storage.claim import Lease
from penstock.task import define
from penstock.worker.backlog import Line
from penstock.worker.claimed_job import HeldJob
from penstock.worker.context import Workplace
from penstock.worker.slot_pool import Floor


def held(number: int, partition: int, taken_at: float, *, is_strict: bool) -> HeldJob:
    lease = Lease(number, partition, 5, number, number, 0, 1, None, 1, 0, False, "", 0.0)
    lease.taken_at, lease.is_strict = taken_at, is_strict
    task = define("q", lambda: None, name="t")
    return HeldJob(lease, task, (number * 1024, "{}", None, None, "t"))


def test_what_waited_for_long_goes_back_and_where_starts_have_an_order_what_is_behind_it() -> None:
    place = Workplace(Database("postgresql://nowhere"), "", lambda *_: None)
    line = Line(Floor(2, lambda _: None), place, lambda: None)
    jobs = [
        held(1, 1, 5.0, is_strict=True),
        held(2, 1, 1.0, is_strict=True),
        held(3, 1, 5.0, is_strict=True),
        held(4, 2, 5.0, is_strict=True),
        held(5, 3, 1.0, is_strict=False),
        held(6, 3, 5.0, is_strict=False),
    ]
    line.feed(jobs, 0)
    assert [job.lease.id for job in line.withdraw_late(2.0)] == [2, 3, 5]
    assert len(line) == 3
