"""Advice on partitions, from weights made up by hand."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from penstock.model.rules import QueueRules
from penstock.spark.advising.advice import Weights, build_advice
from penstock.spark.advising.advice_page import build_advice_page
from penstock.spark.reporting.figures import HotKey
from penstock.spark.reporting.key_time import KeyTime

ORDERED = QueueRules(order="key")


def weights(sizes: dict[str, int], unkeyed: int = 0) -> Weights:
    """Keys dealt out in turn: as even as they can lie without being divided."""
    partitions = {}
    for number in range(1, 65):
        jobs = [0] * number
        for size in sorted(sizes.values(), reverse=True):
            jobs[jobs.index(min(jobs))] += size
        partitions[number] = jobs
    hottest = max(sizes, key=lambda key: sizes[key]) if sizes else None
    return Weights(
        jobs=sum(sizes.values()) + unkeyed,
        unkeyed_jobs=unkeyed,
        keys=len(sizes),
        hottest_key=hottest,
        hottest_jobs=sizes[hottest] if hottest is not None else 0,
        partitions=partitions if sizes else {},
    )


def test_a_hot_key_bounds_the_speed_up_and_the_advice() -> None:
    found = build_advice("orders", 2, ORDERED, weights({"hot": 1_000, **{f"k{n}": 10 for n in range(300)}}))
    assert found.ceiling == pytest.approx(4)
    assert max(choice.speed_up for choice in found.choices) == pytest.approx(4)
    assert found.best == 4
    assert found.sentence == (
        "Resize queue 'orders' from 2 to 4 partitions: that is 4.0 times as fast as one, and more would gain little: "
        "key 'hot' alone has 25 % of the jobs, so that no number passes 4.0 times. No job of it has ended, so this "
        "counts jobs alone: ask again when some have."
    )


def hot_weights(*, run_seconds: float = 0.001, turn_seconds: float = 0.004, jobs_a_second: float = 2_000) -> Weights:
    """A customer with a hundredth of 100,000 jobs, which a busy partition ends in 50 seconds."""
    found = weights({"hot": 1_000, **{f"k{n}": 10 for n in range(9_900)}})
    time = KeyTime(1_000, run_seconds, turn_seconds, True)
    slowest = [HotKey("hot", 1_000, 0.01, time)]
    return replace(found, slowest=slowest, run_seconds=run_seconds, jobs_a_second=jobs_a_second)


def test_no_number_of_partitions_is_faster_than_a_key_alone_and_runs_are_named() -> None:
    found = build_advice("orders", 4, ORDERED, hot_weights())
    assert found.least_seconds == pytest.approx(5)
    assert found.run == 100
    assert found.seconds_in_runs == pytest.approx(1.04)
    assert found.ceiling == pytest.approx(10)
    assert max(choice.speed_up for choice in found.choices) == pytest.approx(10)
    assert found.choices[-1].speed_up_in_runs == pytest.approx(50 / 1.04)
    assert found.best == 10
    assert found.sentence == (
        "Resize queue 'orders' from 4 to 10 partitions: that is 10.0 times as fast as one, and more would gain little: "
        "key 'hot' needs 5 s for its 1,000 jobs alone, 1.0 % of all (1 ms each and 4 ms until the next starts), so "
        "that no number passes 10.0 times. With run=100 that key would need 1 s: app.limit('orders', run=100), if its "
        "handlers can live with seeing the last jobs of a key again after a crash."
    )
    assert "slowest_key=HotKey(key='hot', jobs=1000" in repr(found)
    assert asdict(found)["slowest_key"]["time"]["seconds"] == pytest.approx(5)


def test_where_a_key_takes_all_the_time_more_partitions_are_no_gain_and_runs_are() -> None:
    found = build_advice("orders", 4, ORDERED, hot_weights(turn_seconds=0.059))
    assert found.ceiling == pytest.approx(1)
    assert found.sentence.startswith(
        "Keep 4 partitions: more would gain nothing: key 'hot' needs 1 min for its 1,000 jobs"
    )
    assert "With run=100 that key would need 1.6 s, and 4 partitions would be 4.8 times as fast" in found.sentence


def test_a_partition_that_only_waited_for_the_turns_of_a_key_is_faster_in_runs() -> None:
    counted = weights({"hot": 900, "other": 100})
    hot = HotKey("hot", 900, 0.9, KeyTime(900, 0.0, 0.005, True))
    found = build_advice("q", 1, ORDERED, replace(counted, slowest=[hot], run_seconds=0.0, jobs_a_second=180))
    assert (found.best, found.run) == (1, 100)
    assert found.choices[0].speed_up_in_runs == pytest.approx(100)
    assert "more would gain nothing: key 'hot' needs 4.5 s" in found.sentence
    assert "that key would need 45 ms, and one partition would be 100.0 times as fast" in found.sentence


def test_runs_are_advised_only_where_they_can_be_had_and_help() -> None:
    assert build_advice("q", 4, QueueRules(order="key", run=50), hot_weights()).run is None
    assert build_advice("q", 4, QueueRules(order="key", limit=3), hot_weights()).run is None
    even = replace(hot_weights(jobs_a_second=200), run_seconds=0.1)  # the fullest partition takes longer than any key
    assert build_advice("q", 4, ORDERED, even).run is None
    slow = build_advice("q", 4, ORDERED, hot_weights(run_seconds=0.5, turn_seconds=0.004))
    assert (slow.run, slow.choices[0].speed_up_in_runs) == (None, None)
    assert "run=" not in slow.sentence


def test_a_key_of_which_several_run_or_few_may_start_needs_as_long_as_that_takes() -> None:
    assert build_advice("q", 4, QueueRules(order="key", per_key=5), hot_weights()).least_seconds == pytest.approx(1)
    rated = build_advice("q", 4, QueueRules(order="key", per_key_rate="2/s"), hot_weights())
    assert rated.least_seconds == pytest.approx(500)
    assert rated.run is None


def test_a_number_that_comes_near_the_best_is_kept() -> None:
    found = build_advice("orders", 8, ORDERED, weights({"hot": 1_000, **{f"k{n}": 10 for n in range(300)}}))
    assert found.sentence.startswith("Keep 8 partitions: that is 4.0 times as fast as one")
    beyond = build_advice("orders", 100, ORDERED, weights({"hot": 1_000, "k": 10}))
    assert beyond.sentence.startswith("Resize queue 'orders' from 100 to one partition")


def test_even_keys_ask_for_as_many_as_there_are_workers() -> None:
    found = build_advice("orders", 2, ORDERED, weights({f"k{n}": 10 for n in range(6_400)}))
    assert [choice.balance for choice in found.choices] == pytest.approx([1] * 64, rel=0.05)
    assert found.sentence.startswith("Give queue 'orders' as many partitions as it will have workers (2 now)")
    assert "64.0 times as fast with 64" in found.sentence


def test_queues_without_keys_order_or_jobs_are_told_so() -> None:
    assert "has no jobs to learn from" in build_advice("q", 1, ORDERED, Weights()).sentence
    unkeyed = build_advice("q", 1, QueueRules(), weights({}, unkeyed=5))
    assert (unkeyed.best, unkeyed.choices, unkeyed.jobs) == (None, [], 5)
    assert "has no keys" in unkeyed.sentence
    plain = build_advice("q", 1, QueueRules(), weights({"a": 1, "b": 1}))
    assert (plain.best, len(plain.choices)) == (None, 64)
    assert "keeps no order of keys" in plain.sentence


@pytest.mark.parametrize("sizes", [{}, {"a": 1}, {"<script>alert(1)</script>": 9, "b\x00\u202e": 1}])
def test_the_picture_is_drawn_for_any_keys(sizes: dict[str, int]) -> None:
    counted = weights(sizes)
    for rules in (ORDERED, QueueRules()):
        shown = build_advice_page(build_advice("<b>q</b>", 3, rules, counted), counted)
        assert "<script" not in shown
        assert "<b>q</b>" not in shown
        assert "\x00" not in shown
        assert "\u202e" not in shown
