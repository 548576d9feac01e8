"""The jobs of a sequence against a sorted list, with arrays so short that they are split and cut all the time."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.policy import job_sequence
from penstock.policy.job_sequence import AHEAD, BEHIND, FIELDS, ID, KNOWN, MARK, RANK, JobSequence


@pytest.fixture(autouse=True)
def short_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_sequence, "MOST_FIELDS", 6 * FIELDS)
    monkeypatch.setattr(job_sequence, "KEPT_FIELDS", 2 * FIELDS)


PLACES = st.tuples(st.integers(0, 12), st.integers(0, 12))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=400)
@given(st.lists(st.one_of(PLACES, st.none(), st.integers(1, 20)), max_size=120))
def test_a_sequence_is_a_sorted_set(acts: list[tuple[int, int] | int | None]) -> None:
    sequence, expected, end = JobSequence(1, 5), list[tuple[int, int]](), 100
    for step, act in enumerate(acts):
        if isinstance(act, tuple):
            was_known, was_head = act in expected, expected[:1]
            expected = sorted({*expected, act})
            placed = sequence.add(*act, step, step)
            assert placed == (KNOWN if was_known else AHEAD if expected[:1] != was_head else BEHIND)
            if expected[0] == act:
                assert (sequence.first[sequence.at + RANK], sequence.first[sequence.at + MARK]) == (step, step)
        elif isinstance(act, int):
            # A run of jobs at the end, where no other is.
            end += 1
            assert sequence.ends_before(end, 0)
            sequence.append_alike(end, range(act), step, step)
            expected += [(end, number) for number in range(act)]
        elif expected:
            pos, job = expected.pop(0)
            assert (sequence.first[sequence.at], sequence.first[sequence.at + ID]) == (pos, job)
            assert sequence.pop() == job
        assert sequence.is_empty == (not expected)
    for _, job in expected:
        assert sequence.pop() == job
    assert sequence.is_empty


def test_what_has_left_a_sequence_takes_no_room() -> None:
    sequence = JobSequence(1, 5)
    for number in range(10_000):
        sequence.add(number, number, 0, 0)
        if number >= 3:
            assert sequence.pop() == number - 3
    assert len(sequence.first) + sum(len(each) for each in sequence.later or ()) <= 12 * FIELDS
