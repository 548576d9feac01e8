"""What a worker counts of its jobs: each end once, and in the right bucket."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.work.leases import Lease
from penstock.task import define
from penstock.task.verdict import Verdict
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.ended_jobs import EndedJobs
from penstock.worker.job_figures import BOUNDS, Histogram, JobFigures, TaskFigures

SECOND = 10**9
NOW = 1_000 * SECOND
TASKS = {name: define("q", lambda: None, name=name) for name in ("a", "b")}


def lease(number: int, task: str = "a", *, waited: float = 2.0, taken: float = 99.0) -> Lease:
    made = Lease(number, 1, 5, number, number, 0, 4, None, 1, 0, False, task, waited)
    made.taken_at = taken
    return made


def job(
    of: Lease, position: int, *, task: str = "a", started: float = 0.5, ran: float = 0.25, end: str = ""
) -> ClaimedJob:
    """One that started so many seconds ago, and ran for so long."""
    began = NOW - int(started * SECOND)
    made = ClaimedJob(of, TASKS[task], of.range * 1024 + position, "{}", None, None, began, began + int(ran * SECOND))
    made.verdict = Verdict(end) if end else None  # type: ignore[arg-type]
    return made


def note(jobs: list[ClaimedJob], not_held: list[tuple[int, int]] | None = None) -> dict[str, TaskFigures]:
    """The figures by task, noted when the clock of leases stood at 100 s."""
    figures = JobFigures(TASKS.values())
    figures.note(EndedJobs(jobs=jobs), not_held or [], 100.0, NOW)
    return {each.task: each for each in figures}


def bucket(seconds: float) -> int:
    return bisect_left([float(bound) for bound in BOUNDS], seconds)


@given(
    st.lists(st.integers(0, 8_000 * SECOND) | st.sampled_from([int(float(b) * SECOND) for b in BOUNDS]), max_size=40)
)
def test_each_value_falls_into_the_first_bucket_that_holds_it(values: list[int]) -> None:
    histogram = Histogram()
    histogram.add(list(values))
    counts = [0] * (len(BOUNDS) + 1)
    for value in values:
        counts[bucket(value / SECOND)] += 1
    assert (histogram.counts, histogram.total) == (counts, sum(values))


@pytest.mark.parametrize("count", [1, 40])
def test_a_job_has_waited_from_when_it_was_ready_until_its_handler_was_called(count: int) -> None:
    # It was ready for 2 s when it was claimed, a second ago, and began half a second ago.
    found = note([job(lease(1), n) for n in range(count)])["a"]
    assert found.wait.total == count * int(2.5 * SECOND)
    assert found.wait.counts[bucket(2.5)] == count
    assert found.run.counts[bucket(0.25)] == count
    assert found.ends == {"succeeded": count}


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
