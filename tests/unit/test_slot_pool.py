"""The slots of a worker: what becomes of one whose handler does not come back."""

from __future__ import annotations

import threading

from tests.unit.test_backlog import held

from penstock.clock import ticks
from penstock.storage import Database
from penstock.worker.backlog import Line
from penstock.worker.claimed_job import HeldJob
from penstock.worker.context import Workplace
from penstock.worker.slot_pool import Floor, Slot

LATE = TimeoutError("too late")


def scene(jobs: int) -> tuple[Floor, Line, list[HeldJob]]:
    """A floor of two slots, and a line of fast jobs that may start."""
    floor = Floor(2, lambda _: None)
    line = Line(floor, Workplace(Database("postgresql://nowhere"), "", lambda *_: None), lambda: None)
    line.valid_until = ticks() + 3_600 * 10**9
    line.is_fast = True
    held_jobs = [held(number, 1, 0.0, is_strict=False) for number in range(1, jobs + 1)]
    line.feed(held_jobs, 0)
    return floor, line, held_jobs


def begin(floor: Floor, slot: Slot) -> HeldJob:
    """Start the next job of a slot."""
    if not slot.bunch:
        assert floor.take(slot)
    job = slot.next()
    assert job is not None
    job.started = job.ended = ticks()
    return job


def test_g13_what_a_hung_handler_had_in_hand_goes_back_in_order_and_its_slot_is_free() -> None:
    floor, line, jobs = scene(8)
    replaced: list[Slot] = []
    slot = floor.slot(lambda: replaced.append(slot))
    hung = begin(floor, slot)
    assert [job.id for job in slot.bunch] == [job.id for job in jobs[1:4]]
    assert floor.take_away(slot, hung, LATE)
    assert replaced == [slot]
    assert floor.running == line.running == 0
    assert list(line.waiting) == jobs[1:]
    assert [job for job, _, _ in line.taken_away] == [hung]
    # Its transaction may still hold the job's lease, so that is not forgotten; it counts until it returns.
    assert line.active() == [hung]
    assert floor.left_behind == {slot}
    # Back after all, it takes nothing, and is gone.
    assert slot.next() is None
    assert not floor.take(slot)
    assert not floor.left_behind
    assert line.active() == []


def test_a_handler_that_has_just_returned_keeps_its_slot() -> None:
    floor, line, _ = scene(8)
    slot = floor.slot(lambda: None)
    first = begin(floor, slot)
    first.ended = first.started + 1
    assert not floor.take_away(slot, first, LATE)
    second = begin(floor, slot)
    assert not floor.take_away(slot, first, LATE)
    assert floor.take_away(slot, second, LATE)
    assert not floor.take_away(slot, second, LATE)
    assert len(line.taken_away) == 1


def test_g3_no_job_of_a_bunch_starts_twice_while_slots_are_retired() -> None:
    floor, _, jobs = scene(5_000)
    began: list[HeldJob] = []

    def work() -> None:
        slot = floor.slot(start)
        while floor.take(slot):
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
        for slot in list(floor.slots):
            if (job := slot.current) is not None:
                floor.take_away(slot, job, LATE)
    floor.close()
    for thread in threads:
        thread.join()
    assert sorted(job.lease.id for job in began) == [job.lease.id for job in jobs]
    assert not floor.left_behind
