"""The jobs of a lane against a sorted list, with arrays so short that they are split and cut all the time."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.policy import lane as lanes
from penstock.policy.job_sequence import AHEAD, BEHIND, FIELDS, ID, KNOWN, MARK, RANK, Lane


@pytest.fixture(autouse=True)
def short_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_FIELDS", 6 * FIELDS)
    monkeypatch.setattr(lanes, "KEPT_FIELDS", 2 * FIELDS)


PLACES = st.tuples(st.integers(0, 12), st.integers(0, 12))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=400)
@given(st.lists(st.one_of(PLACES, st.none(), st.integers(1, 20)), max_size=120))
def test_a_lane_is_a_sorted_set(acts: list[tuple[int, int] | int | None]) -> None:
    lane, expected, end = Lane(1, 5), list[tuple[int, int]](), 100
    for step, act in enumerate(acts):
        if isinstance(act, tuple):
            was_known, was_head = act in expected, expected[:1]
            expected = sorted({*expected, act})
            placed = lane.add(*act, step, step)
            assert placed == (KNOWN if was_known else AHEAD if expected[:1] != was_head else BEHIND)
            if expected[0] == act:
                assert (lane.first[lane.at + RANK], lane.first[lane.at + MARK]) == (step, step)
        elif isinstance(act, int):
            # A run of jobs at the end, where no other is.
            end += 1
            assert lane.ends_before(end, 0)
            lane.append_run(end, range(act), step, step)
            expected += [(end, number) for number in range(act)]
        elif expected:
            pos, job = expected.pop(0)
            assert (lane.first[lane.at], lane.first[lane.at + ID]) == (pos, job)
            assert lane.pop() == job
        assert lane.is_empty == (not expected)
    for _, job in expected:
        assert lane.pop() == job
    assert lane.is_empty


def test_what_has_left_a_lane_takes_no_room() -> None:
    lane = Lane(1, 5)
    for number in range(10_000):
        lane.add(number, number, 0, 0)
        if number >= 3:
            assert lane.pop() == number - 3
    assert len(lane.first) + sum(len(each) for each in lane.later or ()) <= 12 * FIELDS
