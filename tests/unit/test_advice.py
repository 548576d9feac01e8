"""Advice on partitions, from weights made up by hand."""

from __future__ import annotations

import pytest

from penstock.spark.advising.advice import Weights, build_advice
from penstock.spark.advising.advice_page import build_advice_page


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
    found = build_advice("orders", 2, True, weights({"hot": 1_000, **{f"k{n}": 10 for n in range(300)}}))
    assert found.ceiling == pytest.approx(4)
    assert max(choice.speed_up for choice in found.choices) == pytest.approx(4)
    assert found.best == 4
    assert found.sentence == (
        "Resize queue 'orders' from 2 to 4 partitions: that is 4.0 times as fast as one, and more would gain little: "
        "key 'hot' alone has 25 % of the jobs, so that no number passes 4.0 times."
    )


def test_a_number_that_comes_near_the_best_is_kept() -> None:
    found = build_advice("orders", 8, True, weights({"hot": 1_000, **{f"k{n}": 10 for n in range(300)}}))
    assert found.sentence.startswith("Keep 8 partitions: that is 4.0 times as fast as one")
    beyond = build_advice("orders", 100, True, weights({"hot": 1_000, "k": 10}))
    assert beyond.sentence.startswith("Resize queue 'orders' from 100 to one partition")


def test_even_keys_ask_for_as_many_as_there_are_workers() -> None:
    found = build_advice("orders", 2, True, weights({f"k{n}": 10 for n in range(6_400)}))
    assert [choice.balance for choice in found.choices] == pytest.approx([1] * 64, rel=0.05)
    assert found.sentence.startswith("Give queue 'orders' as many partitions as it will have workers (2 now)")
    assert "64.0 times as fast with 64" in found.sentence


def test_queues_without_keys_order_or_jobs_are_told_so() -> None:
    assert "has no jobs to learn from" in build_advice("q", 1, True, Weights()).sentence
    unkeyed = build_advice("q", 1, False, weights({}, unkeyed=5))
    assert (unkeyed.best, unkeyed.choices, unkeyed.jobs) == (None, [], 5)
    assert "has no keys" in unkeyed.sentence
    plain = build_advice("q", 1, False, weights({"a": 1, "b": 1}))
    assert (plain.best, len(plain.choices)) == (None, 64)
    assert "keeps no order of keys" in plain.sentence


@pytest.mark.parametrize("sizes", [{}, {"a": 1}, {"<script>alert(1)</script>": 9, "b\x00\u202e": 1}])
def test_the_picture_is_drawn_for_any_keys(sizes: dict[str, int]) -> None:
    counted = weights(sizes)
    for is_ordered in (True, False):
        shown = build_advice_page(build_advice("<b>q</b>", 3, is_ordered, counted), counted)
        assert "<script" not in shown
        assert "<b>q</b>" not in shown
        assert "\x00" not in shown
        assert "\u202e" not in shown
