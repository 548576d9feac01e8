"""What a worker counts of its jobs: each end once, and in the right bucket."""

from __future__ import annotations

from bisect import bisect_left

import pytest

from penstock.clock import system, ticks
from penstock.policy.claim_size import ClaimSize
from penstock.storage import Database
from penstock.storage.work.leases import Lease
from penstock.task import define
from penstock.task.verdict import Verdict
from penstock.worker.backlog import Backlog
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.context import Registration
from penstock.worker.ended_jobs import collect_ended
from penstock.worker.job_figures import BOUNDS, JobFigures, TaskFigures
from penstock.worker.slot_pool import SlotPool
from penstock.worker.stop_request import StopRequest

SECOND = 10**6  # microseconds
TASKS = {name: define("q", lambda: None, name=name) for name in ("a", "b")}


def lease(number: int, task: str = "a") -> Lease:
    """It was ready for 2 s when it was claimed, a second before its jobs' ends were collected."""
    made = Lease(number, 1, 5, number, number, 0, 4, None, 1, 0, False, task, 2.0)
    made.taken_at = system.monotonic() - 1.0
    return made


def job(
    of: Lease, position: int, *, task: str = "a", started: float = 0.5, ran: float = 0.25, end: str = ""
) -> ClaimedJob:
    """One that started so many seconds ago, and ran for so long."""
    began = ticks() - int(started * 1e9)
    made = ClaimedJob(of, TASKS[task], of.range * 1024 + position, "{}", None, None, began, began + int(ran * 1e9))
    made.verdict = Verdict(end) if end else None  # type: ignore[arg-type]
    return made


def note(jobs: list[ClaimedJob], not_held: list[tuple[int, int]] | None = None) -> dict[str, TaskFigures]:
    """The figures by task, of ends that were collected and settled."""
    pool = SlotPool(1, lambda _: None)
    registration = Registration(Database("postgresql://nowhere"), "", lambda *_: None, StopRequest())
    backlog = Backlog(pool, registration, lambda: None)
    backlog.done.extend(jobs)
    figures = JobFigures(TASKS.values())
    ended = collect_ended(backlog, ClaimSize(), [])
    figures.note(ended, not_held or [], system.monotonic())
    return {each.task: each for each in figures}


def bucket(seconds: float) -> int:
    return bisect_left([float(bound) for bound in BOUNDS], seconds)


@pytest.mark.parametrize("task", ["a", ""])
def test_a_job_has_waited_from_when_it_was_ready_until_its_handler_was_called(task: str) -> None:
    one = lease(1, task)
    found = note([job(one, n) for n in range(4)])["a"]
    # Ready 3 s ago, and begun half a second ago; the clock goes on while the test runs.
    assert 4 * 2.4 * SECOND < found.wait.total < 4 * 2.5 * SECOND + 4 * 60 * SECOND
    assert sum(found.wait.counts) == sum(found.wait.counts[bucket(2.5) :]) == 4
    assert found.run.counts[bucket(0.25)] == 4
    assert found.ends == {"succeeded": 4}


def test_every_end_is_counted_as_it_was_and_what_never_ran_has_no_time() -> None:
    one = lease(1)
    ends = ["", "retry", "snooze", "failed", "discarded", "cancelled", "expired"]
    jobs = [job(one, n, end=end, ran=0.0 if end == "expired" else 0.25) for n, end in enumerate(ends)]
    found = note(jobs)["a"]
    assert found.ends == {end or "succeeded": 1 for end in ends}
    assert sum(found.run.counts) == sum(found.wait.counts) == 6


def test_an_end_that_was_refused_is_late_and_nothing_else() -> None:
    split = job(lease(2), 1)
    split.split_lease = 9
    jobs = [job(lease(1), 0), job(lease(1), 1), job(lease(1), 2, end="retry"), split]
    found = note(jobs, [(1, 1), (1, 2), (9, 1)])["a"]
    assert (found.late, dict(found.ends)) == (3, {"succeeded": 1})
    assert sum(found.run.counts) == 4


def test_a_lease_whose_range_has_jobs_of_several_tasks_counts_for_each() -> None:
    mixed = lease(1, "")
    found = note([job(mixed, 0), job(mixed, 1, task="b"), job(mixed, 2)])
    assert {name: each.ends["succeeded"] for name, each in found.items()} == {"a": 2, "b": 1}
