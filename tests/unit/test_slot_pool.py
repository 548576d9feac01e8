"""The slots of a worker: what becomes of one whose handler does not come back."""

from __future__ import annotations

import threading

from tests.unit.test_backlog import claimed

from penstock.clock import ticks
from penstock.storage import Database
from penstock.worker.backlog import Backlog
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.context import Registration
from penstock.worker.slot_pool import Slot, SlotPool
from penstock.worker.stop_request import StopRequest

LATE = TimeoutError("too late")


def scene(jobs: int) -> tuple[SlotPool, Backlog, list[ClaimedJob]]:
    """A pool of two slots, and a backlog of fast jobs that may start."""
    slot_pool = SlotPool(2, lambda _: None)
    backlog = Backlog(
        slot_pool, Registration(Database("postgresql://nowhere"), "", lambda *_: None, StopRequest()), lambda: None
    )
    backlog.valid_until = ticks() + 3_600 * 10**9
    backlog.expect(0.0001)
    claimed_jobs = [claimed(number, 1, 0.0, starts_in_order=False) for number in range(1, jobs + 1)]
    backlog.feed(claimed_jobs, 0)
    return slot_pool, backlog, claimed_jobs


def begin(slot_pool: SlotPool, slot: Slot) -> ClaimedJob:
    """Start the next job of a slot."""
    if not slot.bunch:
        assert slot_pool.take(slot)
    job = slot.next()
    assert job is not None
    job.started = job.ended = ticks()
    return job


def test_g13_what_a_hung_handler_had_in_hand_goes_back_in_order_and_its_slot_is_free() -> None:
    slot_pool, backlog, jobs = scene(8)
    replaced: list[Slot] = []
    slot = slot_pool.add_slot(lambda: replaced.append(slot))
    hung = begin(slot_pool, slot)
    assert [job.id for job in slot.bunch] == [job.id for job in jobs[1:4]]
    assert slot_pool.take_away(slot, hung, LATE)
    assert replaced == [slot]
    assert slot_pool.running == backlog.running == 0
    assert list(backlog.waiting) == jobs[1:]
    assert [job for job, _, _ in backlog.taken_away] == [hung]
    # Its transaction may still hold the job's lease, so that is not forgotten; it counts until it returns.
    assert backlog.active() == [hung]
    assert slot_pool.left_behind == {slot}
    # Back after all, it takes nothing, and is gone.
    assert slot.next() is None
    assert not slot_pool.take(slot)
    assert not slot_pool.left_behind
    assert backlog.active() == []


def test_a_handler_that_has_just_returned_keeps_its_slot() -> None:
    slot_pool, backlog, _ = scene(8)
    slot = slot_pool.add_slot(lambda: None)
    first = begin(slot_pool, slot)
    first.ended = first.started + 1
    assert not slot_pool.take_away(slot, first, LATE)
    second = begin(slot_pool, slot)
    assert not slot_pool.take_away(slot, first, LATE)
    assert slot_pool.take_away(slot, second, LATE)
    assert not slot_pool.take_away(slot, second, LATE)
    assert len(backlog.taken_away) == 1


def test_g3_no_job_of_a_bunch_starts_twice_while_slots_are_retired() -> None:
    slot_pool, _, jobs = scene(5_000)
    began: list[ClaimedJob] = []

    def work() -> None:
        slot = slot_pool.add_slot(start)
        while slot_pool.take(slot):
            while (job := slot.next()) is not None:
                began.append(job)
                job.started = job.ended = ticks()
                job.ended += 1

    threads: list[threading.Thread] = []

    def start() -> None:
        threads.append(threading.Thread(target=work))
        threads[-1].start()

    for _ in range(2):
        start()
    while len(began) < len(jobs):
        for slot in list(slot_pool.slots):
            if (job := slot.current) is not None:
                slot_pool.take_away(slot, job, LATE)
    slot_pool.close()
    for thread in threads:
        thread.join()
    assert sorted(job.lease.id for job in began) == [job.lease.id for job in jobs]
    assert not slot_pool.left_behind
