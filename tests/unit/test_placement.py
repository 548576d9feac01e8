"""Unkeyed calls go whole to the least loaded partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.routing import Depth, Placement, least_loaded


def opened(placement: Placement, *partitions: int) -> list[int]:
    return [depth.opened for depth in placement.depths(partitions)]


def learn(placement: Placement, depths: dict[int, int]) -> None:
    placement.learn({partition: Depth(jobs, jobs) for partition, jobs in depths.items()})


@pytest.mark.parametrize(
    ("depths", "expected"), [([0], 0), ([5, 3, 4], 1), ([2, 1, 1], 1), ([0, 0, 0, 0], 0), ([9, 9, 8], 2)]
)
def test_the_least_loaded_is_the_lowest_of_equals(depths: list[int], expected: int) -> None:
    assert least_loaded(depths) == expected


def test_what_is_to_be_avoided_is_passed_over_unless_nothing_else_is_left() -> None:
    assert least_loaded([0, 5, 3], avoid={0}) == 2
    assert least_loaded([4, 5, 3], avoid={0, 1, 2}) == 2


def test_lesson_querator_calls_of_50_30_100_then_20_100_100_give_50_130_100_120() -> None:
    placement = Placement()
    for jobs in (50, 30, 100, 20, 100, 100):
        placement.place([11, 12, 13, 14], jobs)
    assert opened(placement, 11, 12, 13, 14) == [50, 130, 100, 120]


def test_what_was_read_replaces_what_was_counted() -> None:
    placement = Placement()
    placement.place([1, 2], 100)
    learn(placement, {1: 7, 2: 9})
    assert opened(placement, 1, 2) == [7, 9]
    learn(placement, {2: 1})
    assert opened(placement, 1, 2, 3) == [7, 1, 0], "each shard is read by itself"


def test_only_those_that_may_be_chosen_are() -> None:
    placement = Placement()
    learn(placement, {1: 0, 2: 5, 3: 6})
    assert placement.place([2, 3], 1) == 2
    assert placement.place([3, 2], 1) == 3, "the first of equals"


def test_a_call_that_failed_is_uncounted_and_moves_on() -> None:
    placement = Placement()
    learn(placement, {1: 5, 2: 6, 3: 7})
    failed = placement.place([1, 2, 3], 10)
    placement.withdraw(failed, 10)
    assert placement.place([2, 3], 10) == 2
    assert opened(placement, 1, 2, 3) == [5, 16, 7]


def test_uncounting_after_a_fresh_reading_never_goes_below_nothing() -> None:
    placement = Placement()
    partition = placement.place([1, 2], 10)
    learn(placement, {1: 0})
    placement.withdraw(partition, 10)
    placement.withdraw(9, 10)
    assert opened(placement, 1, 2, 9) == [0, 0, 0]


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=50), st.integers(1, 8))
def test_no_partition_is_ahead_of_another_by_more_than_the_largest_call(calls: list[int], count: int) -> None:
    placement = Placement()
    partitions = range(count)
    for jobs in calls:
        placement.place(partitions, jobs)
    depths = opened(placement, *partitions)
    assert sum(depths) == sum(calls)
    assert max(depths) - min(depths) <= max(calls)


def test_calls_that_wait_are_spread_by_what_will_want_to_run() -> None:
    placement = Placement()
    chosen = [placement.place([1, 2, 3, 4], 1000, is_ready=False) for _ in range(8)]
    assert chosen == [1, 2, 3, 4, 1, 2, 3, 4]
    assert placement.depths([1, 4]) == [Depth(0, 2000), Depth(0, 2000)]


def test_what_is_due_next_month_does_not_keep_todays_work_away() -> None:
    placement = Placement()
    placement.learn({1: Depth(0, 1_000_000), 2: Depth(1, 1)})
    assert placement.place([1, 2], 1) == 1
    assert placement.place([1, 2], 1, is_ready=False) == 2
    placement.withdraw(2, 1, is_ready=False)
    assert placement.depths([1, 2]) == [Depth(1, 1_000_001), Depth(1, 1)]
