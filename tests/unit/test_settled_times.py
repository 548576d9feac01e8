"""What a worker counts of waits and run times for the figures of each minute: each attempt, by queue."""

from __future__ import annotations

import pytest

from penstock.clock import system, ticks
from penstock.policy.claim_size import ClaimSize
from penstock.policy.histogram import percentile
from penstock.storage import Database
from penstock.storage.work.leases import Lease
from penstock.task import define
from penstock.task.verdict import Verdict
from penstock.upkeep.queue_times import QueueTimes
from penstock.worker.backlog import Backlog
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.context import Registration
from penstock.worker.ended_jobs import collect_ended
from penstock.worker.settled_times import MOST_A_TURN, SettledTimes
from penstock.worker.slot_pool import SlotPool
from penstock.worker.stop_request import StopRequest

QUEUES = {"q": 7, "r": 8}
TASKS = {name: define(name, lambda: None, name="t") for name in QUEUES}


def lease(number: int, partition: int = 1) -> Lease:
    """It was ready for 2 s when it was claimed, a second before its jobs' ends were collected."""
    made = Lease(number, partition, 5, number, number, 0, 1024, None, 1, 0, False, "t", 2.0)
    made.taken_at = system.monotonic() - 1.0
    return made


def job(of: Lease, position: int, *, queue: str = "q", ran: float = 0.25, end: str = "") -> ClaimedJob:
    """One that started half a second ago, and ran for so long."""
    began = ticks() - 500_000_000
    made = ClaimedJob(of, TASKS[queue], of.range * 1024 + position, "{}", None, None, began, began + int(ran * 1e9))
    made.verdict = Verdict(end) if end else None  # type: ignore[arg-type]
    return made


def note(*turns: list[ClaimedJob]) -> dict[int, tuple[list[int], list[int]]]:
    """What is counted of turns in which these ended, by queue."""
    times = QueueTimes()
    settled = SettledTimes(times, QUEUES)
    for jobs in turns:
        registration = Registration(Database("postgresql://nowhere"), "", lambda *_: None, StopRequest())
        backlog = Backlog(SlotPool(1, lambda _: None), registration, lambda: None)
        backlog.done.extend(jobs)
        settled.note(collect_ended(backlog, ClaimSize(), []), system.monotonic())
    return {each.queue_id: (each.waits, each.runs) for each in times.unwritten()}


@pytest.mark.parametrize("end", ["", "retry"])
def test_a_job_has_waited_from_when_it_was_ready_until_its_handler_was_called(end: str) -> None:
    one = lease(1)
    waits, runs = note([job(one, n, end=end) for n in range(4)])[7]
    assert sum(waits) == sum(runs) == 4
    assert percentile(waits, 1.0) == pytest.approx(2.5, rel=0.27)
    assert percentile(runs, 1.0) == pytest.approx(0.25, rel=0.27)


def test_each_queue_is_counted_by_itself_and_what_never_ran_not_at_all() -> None:
    one, other = lease(1), lease(2, partition=2)
    ends = ["", "retry", "failed", "cancelled", "expired"]
    jobs = [job(one, n, end=end, ran=0.0 if end == "expired" else 0.25) for n, end in enumerate(ends)]
    found = note([*jobs, job(other, 0, queue="r"), job(other, 1, queue="r")])
    assert {queue: (sum(waits), sum(runs)) for queue, (waits, runs) in found.items()} == {7: (4, 4), 8: (2, 2)}


def test_of_very_many_some_stand_for_all() -> None:
    def turn(number: int) -> list[ClaimedJob]:
        many = [job(lease(number), n, ran=0.3 if n % 10 else 3.0) for n in range(1_000)]
        few = [job(each, 0) for each in map(lease, range(number + 1, number + 500))]
        return many + few + [job(lease(number + 501), n, end="retry") for n in range(100)]

    turns = [turn(1_000 * number) for number in range(1, 4)]
    waits, runs = note(*turns)[7]
    count = sum(map(len, turns))
    most = 1 + len(turns[0]) // MOST_A_TURN
    assert sum(runs) == sum(waits)
    assert abs(sum(runs) - count) <= most
    assert percentile(runs, 0.5) == pytest.approx(0.3, rel=0.27)
    assert percentile(runs, 0.99) == pytest.approx(3.0, rel=0.27)


def test_a_turn_in_which_nothing_ended_counts_nothing() -> None:
    waits, runs = note([], [job(lease(1), 0)], [])[7]
    assert sum(waits) == sum(runs) == 1
