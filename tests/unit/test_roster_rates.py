"""Token buckets, of a partition and of each key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import QueueRules
from penstock.policy import Roster, WaitingJob
from penstock.policy.rate import Bucket, KeyBuckets, Rate


def job(number: int, key: bytes | None = None) -> WaitingJob:
    return WaitingJob(number, b"%d" % number if key is None else key, 5, number, float(number), "", 1, True)


def roster_of(count: int, rules: QueueRules) -> Roster:
    roster = Roster(rules, 0, 0.0)
    roster.add(job(number) for number in range(count))
    return roster


def started(roster: Roster, now: float) -> int:
    return len(roster.take(1_000, now))


@pytest.mark.parametrize(("per_second", "burst"), [(0.01, 1), (1.0, 1), (1.9, 1), (2.0, 2), (100.5, 100)])
def test_the_burst_is_a_second_and_never_less_than_one(per_second: float, burst: int) -> None:
    assert Rate(per_second).burst == burst


def test_a_bucket_is_empty_at_first_since_the_last_owner_may_have_spent_it() -> None:
    roster = roster_of(100, QueueRules(per_key=1, rate="10/s"))
    assert started(roster, 0.0) == 0
    assert roster.next_at(0.0) == pytest.approx(0.1)
    assert started(roster, 0.55) == 5
    assert started(roster, 0.55) == 0


def test_a_bucket_never_holds_more_than_the_burst() -> None:
    roster = roster_of(100, QueueRules(per_key=1, rate="10/s"))
    assert started(roster, 1_000.0) == 10
    assert started(roster, 1_000.0) == 0
    assert started(roster, 1_000.5) == 5


def test_what_was_not_wanted_stays_in_the_bucket() -> None:
    roster = roster_of(100, QueueRules(per_key=1, rate="10/s"))
    assert len(roster.take(3, 10.0)) == 3
    assert started(roster, 10.0) == 7


def test_next_at_tells_when_a_rate_lets_the_next_start_and_only_then() -> None:
    roster = Roster(QueueRules(per_key=1, rate="2/s"), 0, 0.0)
    assert roster.next_at(0.0) is None, "nothing waits"
    roster.add([job(1), job(2), job(3), job(4)])
    assert roster.next_at(5.0) is None, "one could start now"
    assert started(roster, 5.0) == 2
    assert roster.next_at(5.0) == pytest.approx(5.5)
    roster.rules = QueueRules(per_key=1, rate="2/s", limit=2)
    assert roster.next_at(5.0) is None, "it waits for the limit"
    assert not roster.is_idle(5.0)


def test_without_a_rate_there_is_no_next() -> None:
    roster = roster_of(3, QueueRules(per_key=1))
    assert roster.next_at(0.0) is None
    assert len(roster.take(1, 0.0)) == 1
    assert roster.next_at(0.0) is None


def test_each_key_has_its_own_bucket() -> None:
    roster = Roster(QueueRules(per_key=9, per_key_rate="2/s"), 0, 0.0)
    roster.add(job(number, b"ab"[number % 2 :][:1]) for number in range(20))
    assert roster.take(100, 0.0) == []
    assert roster.next_at(0.0) == pytest.approx(0.5)
    assert roster.take(100, 1.0) == [0, 1, 2, 3]
    assert roster.next_at(1.0) == pytest.approx(1.5)
    roster.add([job(30, b"c")])
    assert roster.next_at(1.0) is None, "another key could start now"
    assert roster.take(100, 1.5) == [4, 5, 30]


def test_a_key_keeps_its_empty_bucket_when_nothing_of_it_waits() -> None:
    roster = Roster(QueueRules(per_key=1, per_key_rate="1/s"), 0, 0.0)
    for number in range(3):
        roster.add([job(number, b"a")])
        assert roster.take(9, number + 0.5) == []
        assert roster.take(9, number + 1.0) == [number]
        roster.note_end(number, "succeeded", number + 1.0)


def test_a_key_that_waits_for_a_token_is_held_back_by_the_other_rules_as_well() -> None:
    roster = Roster(QueueRules(per_key=2, per_key_rate="1/s", on_dead="halt"), 0, 0.0)
    roster.add([job(0, b"a"), job(1, b"a"), job(2, b"a")])
    assert roster.take(9, 1.0) == [0]
    assert roster.take(9, 1.0) == []
    roster.note_end(0, "failed", 1.5)
    assert roster.take(9, 5.0) == []
    assert roster.next_at(5.0) is None, "it waits for a person"
    roster.set_halted([b"a"])
    roster.set_halted([])
    assert roster.take(9, 5.0) == [1]


def test_jobs_without_a_key_have_no_rate_of_a_key() -> None:
    roster = Roster(QueueRules(per_key=1, per_key_rate="1/s"), 0, 0.0)
    roster.add(WaitingJob(number, None, 5, number, 0.0, "", 1, True) for number in range(5))
    assert len(roster.take(9, 0.0)) == 5


def test_both_rates_hold_together_and_a_token_is_spent_only_by_a_start() -> None:
    roster = Roster(QueueRules(per_key=9, rate="4/s", per_key_rate="1/s"), 0, 0.0)
    roster.add(job(number, b"a") for number in range(5))
    assert roster.take(9, 10.0) == [0]
    roster.add(job(number, b"%d" % number) for number in range(10, 20))
    assert roster.take(9, 10.0) == [10, 11, 12]
    assert roster.next_at(10.0) == pytest.approx(10.25)


def test_a_raised_rate_is_felt_at_once_and_a_lowered_one_gives_no_burst() -> None:
    roster = roster_of(1_000, QueueRules(per_key=1, rate="0.6/m"))
    assert started(roster, 100.0) == 1
    roster.rules = QueueRules(per_key=1, rate="100/s")
    assert started(roster, 101.0) == 0
    assert started(roster, 102.0) == 100
    roster.rules = QueueRules(per_key=1, rate="6/m")
    assert started(roster, 102.0) == 0
    assert roster.next_at(102.0) == pytest.approx(112.0)
    roster.rules = QueueRules(per_key=1)
    assert started(roster, 102.0) == 899


def test_a_rate_of_keys_that_changes_is_felt_by_those_that_wait_for_a_token() -> None:
    roster = Roster(QueueRules(per_key=9, per_key_rate="0.6/m"), 0, 0.0)
    roster.add(job(number, b"a") for number in range(9))
    assert roster.take(9, 100.0) == [0]
    assert roster.take(9, 100.0) == []
    roster.rules = QueueRules(per_key=9, per_key_rate="2/s")
    assert roster.next_at(100.0) == pytest.approx(100.5)
    assert roster.take(9, 100.5) == [1]
    roster.rules = QueueRules(per_key=9)
    assert len(roster.take(9, 100.5)) == 7


@given(
    st.floats(0.001, 20_000.0),
    st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 30_000)), max_size=40),
    st.floats(0.0, 1e7),
)
def test_g6_a_bucket_never_gives_more_than_burst_and_rate_times_time(
    per_second: float, steps: list[tuple[float, int]], begin: float
) -> None:
    rate = Rate(per_second)
    bucket = Bucket(rate, begin)
    now, full_at_after = begin, [(begin, rate.burst)]
    for passed, wanted in steps:
        now += passed
        starts = min(wanted, bucket.tokens(now))
        bucket.spend(now, starts)
        full_at_after.append((now, starts))
    for first in range(len(full_at_after)):
        total = 0
        for at, starts in full_at_after[first:]:
            total += starts
            assert total <= rate.burst + per_second * (at - full_at_after[first][0]) + 1e-3


@given(st.floats(0.001, 20_000.0), st.integers(1, 50), st.floats(0.0, 1e7))
def test_who_sleeps_until_the_next_token_finds_one(per_second: float, rounds: int, begin: float) -> None:
    bucket = Bucket(Rate(per_second), begin)
    now = begin
    for _ in range(rounds):
        bucket.spend(now, bucket.tokens(now))
        assert bucket.tokens(now) == 0
        now = bucket.next_at()
        assert bucket.tokens(now) >= 1


def test_full_buckets_of_keys_are_forgotten_and_others_are_not() -> None:
    buckets = KeyBuckets(Rate(1.0), 0.0)
    buckets.spend(b"late", 5_000.0)
    for number in range(5_000):
        buckets.spend(b"%d" % number, float(number))
    assert len(buckets) < 1_100
    assert buckets.next_at(b"late") == 5_001.0
    assert buckets.next_at(b"4999") == 5_000.0
