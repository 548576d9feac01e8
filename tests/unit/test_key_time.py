"""The time that a key needs alone: its jobs one after the other, each with a turn of its own, or a hundred with one."""

from __future__ import annotations

import pytest

from penstock.model.rules import QueueRules
from penstock.spark.reporting.key_time import KeyTime, find_run


def test_a_key_needs_a_run_and_a_turn_for_each_job() -> None:
    time = KeyTime(2_887, 0.001, 0.004, True)
    assert time.seconds == pytest.approx(2_887 * 0.005)
    assert time.seconds_in_runs(100) == pytest.approx(2_887 * 0.001_04)
    assert time.seconds_in_runs(1) == pytest.approx(time.seconds)


def test_no_more_jobs_share_a_turn_than_start_within_a_second() -> None:
    assert KeyTime(10, 0.1, 0.1, True).seconds_in_runs(100) == pytest.approx(10 * 0.11)
    assert KeyTime(10, 3.0, 0.1, True).seconds_in_runs(100) == pytest.approx(10 * 3.1)


def test_a_run_is_advised_by_the_key_that_needs_the_longest() -> None:
    fast, slow = KeyTime(1_000, 0.0, 0.005, True), KeyTime(1_000, 1.0, 0.005, True)
    rules = QueueRules(order="key")
    assert find_run(rules, [fast]) == 100
    assert find_run(rules, [slow, fast]) is None
    assert find_run(rules, []) is None
    assert find_run(rules, [KeyTime(99, 0.0, 0.005, True)]) is None
    for others in (QueueRules(), QueueRules(order="key", run=20), QueueRules(order="key", per_key=2)):
        assert find_run(others, [fast]) is None
    assert find_run(QueueRules(order="key", total_rate="5/s"), [fast]) is None
