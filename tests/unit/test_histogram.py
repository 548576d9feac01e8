"""Histograms: each value in its bucket, two added up, and percentiles that are off by a quarter at most."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy.histogram import TIME_BOUNDS, Histogram, percentile, sum_counts

VALUES = st.integers(0, TIME_BOUNDS[-1]) | st.sampled_from(TIME_BOUNDS)
SHARES = (0.5, 0.95, 0.99)


@given(st.lists(VALUES, min_size=1, max_size=40), st.none() | st.just(2 * TIME_BOUNDS[-1]))
def test_each_value_falls_into_the_first_bucket_that_holds_it(values: list[int], until: int | None) -> None:
    together = Histogram()
    together.add_all(values, until=until)
    counts = [0] * (len(TIME_BOUNDS) + 1)
    for value in values:
        counts[bisect_left(TIME_BOUNDS, value if until is None else until - value)] += 1
    assert together.counts == counts


def test_buckets_are_ten_for_each_power_of_ten() -> None:
    assert TIME_BOUNDS[0] == 100
    assert all(TIME_BOUNDS[n + 10] == pytest.approx(10 * TIME_BOUNDS[n], rel=0.01) for n in range(91))
    assert TIME_BOUNDS[-1] / 1e6 == 1e6


@given(st.lists(st.integers(101, TIME_BOUNDS[-1]), min_size=1, max_size=200), st.sampled_from(SHARES))
def test_a_percentile_is_off_by_a_quarter_at_most(values: list[int], share: float) -> None:
    histogram = Histogram()
    histogram.add_all(values)
    exact = sorted(values)[-(-int(share * 100) * len(values) // 100) - 1] / 1e6
    found = percentile(histogram.counts, share)
    assert found is not None
    assert exact / 1.27 <= found <= exact * 1.27


def test_where_nothing_was_counted_there_is_no_percentile_and_beyond_the_last_bound_it_is_that() -> None:
    assert percentile([], 0.5) is percentile([0, 0], 0.5) is None
    histogram = Histogram()
    histogram.add_all([10 * TIME_BOUNDS[-1]])
    assert percentile(histogram.counts, 0.5) == 1e6


@given(st.lists(st.lists(VALUES, min_size=1, max_size=10), max_size=5))
def test_histograms_add_up_to_that_of_all_values(parts: list[list[int]]) -> None:
    whole, each = Histogram(), [Histogram() for _ in parts]
    for part, histogram in zip(parts, each, strict=True):
        whole.add_all(part)
        histogram.add_all(part)
    added = sum_counts([histogram.counts for histogram in each])
    assert added + [0] * (len(whole.counts) - len(added)) == whole.counts
