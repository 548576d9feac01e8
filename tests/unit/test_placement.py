"""Unkeyed calls go whole to the least loaded partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.routing import Placement, least_loaded


@pytest.mark.parametrize(
    ("depths", "expected"), [([0], 0), ([5, 3, 4], 1), ([2, 1, 1], 1), ([0, 0, 0, 0], 0), ([9, 9, 8], 2)]
)
def test_the_least_loaded_is_the_lowest_of_equals(depths: list[int], expected: int) -> None:
    assert least_loaded(depths) == expected


def test_what_is_to_be_avoided_is_passed_over_unless_nothing_else_is_left() -> None:
    assert least_loaded([0, 5, 3], avoid={0}) == 2
    assert least_loaded([4, 5, 3], avoid={0, 1, 2}) == 2


def test_lesson_querator_calls_of_50_30_100_then_20_100_100_give_50_130_100_120() -> None:
    placement = Placement(4)
    placement.learn([0, 0, 0, 0], at=0)
    for jobs in (50, 30, 100, 20, 100, 100):
        placement.place(jobs)
    assert placement.depths == (50, 130, 100, 120)


def test_depths_are_stale_until_read_and_again_after_their_lifetime() -> None:
    placement = Placement(2, lifetime_seconds=1)
    assert placement.is_stale(10)
    placement.learn([3, 1], at=10)
    assert not placement.is_stale(10)
    assert not placement.is_stale(10.9)
    assert placement.is_stale(11)


def test_what_was_read_replaces_what_was_counted() -> None:
    placement = Placement(2)
    placement.place(100)
    placement.learn([7, 9], at=0)
    assert list(placement.depths) == [7, 9]
    placement.learn([1, 2, 3], at=0)
    assert list(placement.depths) == [1, 2, 3], "another client resized the queue"


def test_a_call_that_failed_is_uncounted_and_moves_on() -> None:
    placement = Placement(3)
    placement.learn([5, 6, 7], at=0)
    failed = placement.place(10)
    placement.withdraw(failed, 10)
    assert placement.place(10, avoid={failed}) == 1
    assert placement.depths == (5, 16, 7)


def test_uncounting_after_a_fresh_reading_never_goes_below_nothing() -> None:
    placement = Placement(2)
    index = placement.place(10)
    placement.learn([0], at=0)
    placement.withdraw(index, 10)
    placement.withdraw(1, 10)
    assert placement.depths == (0,)


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=50), st.integers(1, 8))
def test_no_partition_is_ahead_of_another_by_more_than_the_largest_call(calls: list[int], partitions: int) -> None:
    placement = Placement(partitions)
    for jobs in calls:
        placement.place(jobs)
    assert sum(placement.depths) == sum(calls)
    assert max(placement.depths) - min(placement.depths) <= max(calls)
