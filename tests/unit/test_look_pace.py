"""How soon a worker looks again."""

from __future__ import annotations

import pytest

from penstock.policy.look_pace import BULK_SECONDS, FIRST_SECONDS, LONGEST_SECONDS, MANY_JOBS, LookPace


def rest(pace: LookPace, now: float) -> float:
    return pytest.approx(pace.next_at - now)  # type: ignore[return-value]


def test_who_has_not_looked_yet_looks_at_once() -> None:
    assert LookPace().next_at < 0
    assert not LookPace().is_bulk(0.0)


def test_each_look_in_a_row_that_finds_nothing_doubles_the_rest_up_to_a_longest() -> None:
    pace, rests = LookPace(), []
    for now in range(7):
        pace.note_vain(now)
        rests.append(round(pace.next_at - now, 6))
    assert rests == [0.001, 0.002, 0.004, 0.008, 0.016, LONGEST_SECONDS, LONGEST_SECONDS]


@pytest.mark.parametrize("jobs", [1, MANY_JOBS - 1])
def test_who_finds_a_few_jobs_looks_at_once_the_next_time(jobs: int) -> None:
    pace = LookPace()
    pace.note_vain(0.0)
    pace.note_all(jobs, 0.001, 1.0)
    assert pace.next_at == 1.0
    assert not pace.is_bulk(1.0)


def test_who_finds_slow_jobs_or_leaves_some_looks_at_once_the_next_time() -> None:
    pace = LookPace()
    pace.note_all(MANY_JOBS, 0.001, 0.0)
    pace.note_found(0.01)
    assert pace.next_at == 0.01
    assert not pace.is_bulk(0.01)


def test_many_quick_jobs_are_bulk_for_a_while() -> None:
    pace = LookPace()
    pace.note_all(MANY_JOBS, 0.0, 5.0)
    assert pace.next_at == 5.0 + FIRST_SECONDS
    assert pace.is_bulk(5.0)
    pace.note_vain(5.05)
    assert pace.is_bulk(5.05)
    assert not pace.is_bulk(5.01 + BULK_SECONDS)


def test_a_rest_gets_longer_while_jobs_are_found_young_and_shorter_while_they_are_found_old() -> None:
    pace = LookPace()
    pace.note_all(1_000, 0.0, 0.0)
    pace.note_all(1_000, 0.002, 0.02)
    longer = pace.next_at - 0.02
    assert longer > FIRST_SECONDS
    pace.note_all(1_000, 0.007, 0.04)
    assert rest(pace, 0.04) == longer
    pace.note_all(1_000, 0.015, 0.06)
    assert rest(pace, 0.06) == FIRST_SECONDS


def test_a_rest_is_never_longer_than_the_longest() -> None:
    pace = LookPace()
    for number in range(20):
        now = number / 50
        pace.note_all(1_000, 0.0, now)
        assert pace.next_at - now <= LONGEST_SECONDS + 1e-9


def test_two_that_share_look_about_as_often_as_one() -> None:
    """Calls come every 2 ms; each look takes all that is there."""

    def looks(workers: int) -> int:
        paces, called, taken, count, now = [LookPace() for _ in range(workers)], 0, 0, 0, 0.0
        for step in range(20_000):
            now = step / 10_000
            called = step // 20 + 1
            for pace in paces:
                if now >= pace.next_at:
                    count += 1
                    if called > taken:
                        pace.note_all(1_000 * (called - taken), now - taken * 0.002, now)
                        taken = called
                    else:
                        pace.note_vain(now)
        return count

    assert looks(2) <= 1.5 * looks(1)
