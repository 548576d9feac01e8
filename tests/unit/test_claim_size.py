"""How much a worker claims."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy import ClaimSize
from penstock.policy.claim_size import bunch_size


def test_until_something_has_run_the_free_slots_are_wanted() -> None:
    assert ClaimSize().wanted(free_slots=7, concurrency=16) == (7, 0)


def test_slow_handlers_get_exactly_the_free_slots() -> None:
    batch = ClaimSize()
    batch.observe("report", 0.025)
    assert batch.wanted(free_slots=3, concurrency=16) == (3, 0)
    assert batch.wanted(free_slots=0, concurrency=16) == (0, 0)


def test_fast_handlers_get_what_will_start_within_25_ms() -> None:
    batch = ClaimSize()
    batch.observe("send", 0.001)
    assert batch.wanted(free_slots=16, concurrency=16) == (16, 400 - 16)
    assert batch.wanted(free_slots=0, concurrency=16) == (0, 400)
    assert batch.wanted(free_slots=1, concurrency=1) == (1, 24)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, -1.0])
def test_there_is_a_most_that_is_held_ahead(seconds: float) -> None:
    batch = ClaimSize()
    batch.observe("nothing", seconds)
    assert batch.wanted(free_slots=16, concurrency=1_000) == (16, 8_192 - 16)


def test_the_mean_follows_what_a_task_does_now() -> None:
    batch = ClaimSize()
    batch.observe("send", 2.0)
    for _ in range(200):
        batch.observe("send", 0.001)
    assert batch.mean_seconds == pytest.approx(0.001, rel=0.1)
    batch.observe("send", 2.0, jobs=200)
    assert batch.mean_seconds == pytest.approx(2.0, rel=0.1)
    assert batch.wanted(free_slots=4, concurrency=16) == (4, 0)


def test_many_jobs_at_once_count_like_as_many_one_by_one() -> None:
    together, singly = ClaimSize(), ClaimSize()
    for batch in (together, singly):
        batch.observe("send", 1.0)
    together.observe("send", 0.1, jobs=5)
    for _ in range(5):
        singly.observe("send", 0.1)
    assert together.mean_seconds == pytest.approx(singly.mean_seconds)


def test_a_slow_task_that_runs_rarely_does_not_slow_the_others_for_long() -> None:
    batch = ClaimSize()
    batch.observe("nightly", 10.0)
    assert batch.wanted(free_slots=16, concurrency=16).ahead == 0
    for _ in range(1_000):
        batch.observe("send", 0.001)
    assert batch.wanted(free_slots=0, concurrency=16).ahead == 400


def test_a_mix_of_slow_and_fast_counts_by_share() -> None:
    batch = ClaimSize()
    for _ in range(500):
        batch.observe("fast", 0.0)
        batch.observe("slow", 0.1)
    assert batch.mean_seconds == pytest.approx(0.05, rel=0.1)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100), st.integers(1, 5_000))),
    st.integers(0, 1_000),
    st.integers(1, 1_000),
)
def test_what_is_wanted_stays_within_bounds(runs: list[tuple[str, float, int]], free: int, concurrency: int) -> None:
    batch = ClaimSize()
    for task, seconds, jobs in runs:
        batch.observe(task, seconds, jobs)
    wanted = batch.wanted(free, concurrency)
    assert wanted.slots == free
    assert 0 <= wanted.ahead <= 8_192


def test_a_slot_takes_about_a_millisecond_of_fast_jobs_at_once() -> None:
    assert [bunch_size(seconds) for seconds in (0.0, 1e-6, 1e-5, 2e-5, 1e-4, 9e-4)] == [128, 128, 100, 50, 32, 32]
