"""How a report writes numbers, cuts its axes and measures skew."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drawing.axis import (
    find_labelled,
    logarithmic,
    logarithmic_place,
    marks,
    moment_seconds,
    moment_start,
    round_top,
)
from penstock.drawing.charts import curve, fan
from penstock.drawing.formatting import as_text, duration, moment_label, percent, plain, rate, word
from penstock.spark.reporting.skew import gini, lorenz


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "\N{EN DASH}"),
        (0, "0 s"),
        (0.000_038, "38 \N{MICRO SIGN}s"),
        (0.004_21, "4.2 ms"),
        (0.999, "999 ms"),
        (0.999_9, "1 s"),
        (1.25, "1.2 s"),
        (59.4, "59 s"),
        (59.7, "1 min"),
        (75, "1 min 15 s"),
        (3_599.6, "1 h"),
        (11_940, "3 h 19 min"),
        (86_400, "1 d"),
        (100 * 86_400 + 5_000, "100 d"),
    ],
)
def test_a_length_of_time_is_said_as_one_would_say_it(seconds: float | None, said: str) -> None:
    assert as_text(duration(seconds)) == said


def test_shares_are_never_nothing_or_all_where_they_only_near_it() -> None:
    assert [as_text(percent(share)) for share in (0, 0.000_1, 0.0042, 0.31, 0.988, 0.999_99, 1)] == [
        *("0 %", "< 0.1 %", "0.4 %", "31 %", "98.8 %", "> 99.9 %", "100 %"),
    ]
    assert [rate(value) for value in (12_345.6, 2.5, 0.5, 0.01, 0.000_01, 0)] == [
        "12,346/s",
        "2.5/s",
        "30/min",
        "36/h",
        "0.0/h",
        "0",
    ]


@given(st.text())
def test_whatever_is_written_stays_text(text: str) -> None:
    said = word(text)
    assert said.startswith("<bdi>")
    assert not set(said[5:-6]) & set("<>\"'\x00\x1b\u202e\u2066")
    plain(text).encode()


@given(st.floats(0, 1e9))
def test_a_time_axis_has_at_most_72_moments_and_begins_before_the_first_end(seconds: float) -> None:
    step = moment_seconds(seconds)
    first = datetime(2026, 3, 29, 13, 37, 11, 500_000, tzinfo=UTC)
    start = moment_start(first, step)
    assert start <= first
    assert ((first - start).total_seconds() + seconds) / step < 72 + 1
    assert moment_label(start, step, seconds)
    count = int(((first - start).total_seconds() + seconds) / step) + 1
    shown = find_labelled(start, step, count)
    assert 1 <= len(shown) <= 7
    assert len({later - earlier for earlier, later in pairwise(shown)}) <= 1


@given(st.integers(1, 10**12))
def test_an_axis_of_numbers_ends_a_little_above_the_highest_and_is_marked_by_whole_numbers(highest: int) -> None:
    top = round_top(highest)
    assert highest <= top <= highest * 1.51
    assert all(mark == int(mark) for mark in marks(top))
    assert (marks(top)[0], marks(top)[-1]) == (0, top)


@given(st.floats(1e-7, 1e8), st.floats(1, 1e6))
def test_a_logarithmic_axis_has_a_place_for_all_that_it_was_made_for(lowest: float, times: float) -> None:
    axis = logarithmic(lowest, lowest * times)
    assert len(axis) >= 2
    assert 0 <= logarithmic_place(lowest, axis) <= logarithmic_place(lowest * times, axis) <= 1


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40))
def test_skew_is_what_its_definition_says(jobs: list[int]) -> None:
    sizes = [(size, jobs.count(size)) for size in set(jobs)]
    apart = sum(abs(one - other) for one in jobs for other in jobs)
    assert gini(sizes) == pytest.approx(apart / (2 * len(jobs) * sum(jobs)))
    points = lorenz(sizes)
    assert [*points[0], *points[-1]] == pytest.approx([0, 0, 1, 1])
    assert all(y <= x + 1e-9 for x, y in points)
    assert points == sorted(points)
    assert (gini([]), lorenz([])) == (0, [])


def test_a_moment_without_a_neighbour_is_drawn_large_enough_to_be_seen() -> None:
    alone, line = curve([("a", [(0.5, 0.5)])], [], [], ""), curve([("a", [(0.5, 0.5), (0.6, 0.5)])], [], [], "")
    assert ('class="line a point"' in alone, 'class="line a point"' in line) == (True, False)
    told: list[float | None] = [1.0, 2.0, 3.0]
    moments = [("", "", each) for each in (told, [None] * 3, told, told)]
    assert fan(moments, "").count(" point") == 3
