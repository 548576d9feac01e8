"""Keys weighed by Spark, against the routing itself."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.model.rules import QueueRules
from penstock.routing import partition_of
from penstock.spark.advising.key_weights import weigh
from penstock.spark.reporting.key_time import KeyTime

ORDERED = QueueRules(order="key")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
COLUMNS = """key string, key_bytes binary, partition string, attempt int, enqueued_at timestamp, started_at timestamp,
    finished_at timestamp"""

Row = tuple[str, None, str, int, datetime, datetime, datetime]


def test_jobs_are_weighed_as_they_would_be_routed(spark: SparkSession) -> None:
    sizes = {f"customer-{number}": 1 + 600 // (1 + number) for number in range(90)} | {"": 3, "日本": 2}
    rows: list[tuple[str | None, bytearray | None]] = [(key, None) for key, size in sizes.items() for _ in range(size)]
    rows += [(None, bytearray(b"\xff\x00raw"))] * 40
    rows += [(None, None)] * 7
    weights = weigh(_waiting(spark, rows).repartition(3), ORDERED)
    raw = {key.encode(): size for key, size in sizes.items()} | {b"\xff\x00raw": 40}
    assert (weights.jobs, weights.unkeyed_jobs, weights.keys) == (sum(raw.values()) + 7, 7, len(raw))
    assert (weights.hottest_key, weights.hottest_jobs) == ("customer-0", 601)
    assert weights.partitions is not None
    assert sorted(weights.partitions) == list(range(1, 65))
    for number, jobs in weights.partitions.items():
        routed = Counter[int]()
        for key, size in raw.items():
            routed[partition_of(key, number)] += size
        assert list(jobs) == [routed[partition] for partition in range(number)]


def test_nothing_weighs_nothing(spark: SparkSession) -> None:
    weights = weigh(_waiting(spark, []), ORDERED)
    assert (weights.jobs, weights.keys, weights.hottest_key, weights.partitions) == (0, 0, None, {})
    assert (weights.slowest, weights.run_seconds, weights.jobs_a_second) == ([], None, None)


def test_a_key_that_waits_has_a_stated_turn_and_one_that_ran_its_own(spark: SparkSession) -> None:
    rows = [
        *_one_after_another("often", 60, run=0.002, turn=0.010),
        *_one_after_another("long", 30, run=0.100, turn=0.004),
        *_one_after_another("seldom", 10, run=0.002, turn=0.010),
        *[("waiting", None, "p", 1, NOON, None, None)] * 100,
    ]
    weights = weigh(spark.createDataFrame(rows, COLUMNS).repartition(3), ORDERED)
    times = {hot.key: hot.time for hot in weights.slowest}
    mean = 0.0314
    assert weights.run_seconds == pytest.approx(mean, abs=1e-4)
    assert [hot.key for hot in weights.slowest] == ["waiting", "long", "often", "seldom"]
    assert _facts(times["often"]) == (60, 0.002, 0.010, True)
    assert _facts(times["long"]) == (30, 0.100, 0.004, True)
    # Too few to say anything of their own.
    assert _facts(times["seldom"]) == (10, mean, 0.005, False)
    assert _facts(times["waiting"]) == (100, mean, 0.005, False)
    in_runs = weigh(spark.createDataFrame(rows[-1:], COLUMNS), QueueRules(order="key", run=10)).slowest[0].time
    assert _facts(in_runs) == (1, 0.0, 0.0005, False)


def test_a_turn_is_only_what_a_job_waited_for_the_one_before_it(spark: SparkSession) -> None:
    rows = _one_after_another("k", 41, run=0.002, turn=0.010)
    # Every other was enqueued when the one before had ended, is a retry, or waited for something else.
    odd = [
        (key, raw, part, 1, started, started, finished) if number % 2 else row
        for number, row in enumerate(rows)
        for key, raw, part, _, _, started, finished in [row]
    ]
    assert _turn(spark, odd) == (0.010, True)
    assert _turn(spark, odd[1::2]) == (0.005, False)
    retried = [(*row[:3], 2, *row[4:]) for row in rows]
    assert _turn(spark, retried) == (0.005, False)
    apart = [
        (*row[:5], row[5] + timedelta(seconds=9 * n), row[6] + timedelta(seconds=9 * n)) for n, row in enumerate(rows)
    ]
    assert _turn(spark, apart) == (0.005, False)


def test_keys_of_which_several_run_have_no_turns_to_see_and_plain_queues_no_slow_keys(spark: SparkSession) -> None:
    jobs = spark.createDataFrame(_one_after_another("k", 60, run=0.002, turn=0.010), COLUMNS)
    [hot] = weigh(jobs, QueueRules(order="key", per_key=2)).slowest
    assert _facts(hot.time) == (60, 0.002, 0.005, False)
    assert weigh(jobs, QueueRules()).slowest == []


def test_a_busy_partition_is_as_fast_as_in_the_second_of_the_median_job(spark: SparkSession) -> None:
    ended = [NOON + timedelta(seconds=second) for second, jobs in enumerate([70, 40, 3, 3, 3]) for _ in range(jobs)]
    rows = [(f"k{n}", None, "p", 1, NOON, at, at) for n, at in enumerate(ended)]
    assert weigh(spark.createDataFrame(rows, COLUMNS), ORDERED).jobs_a_second == 70


def _waiting(spark: SparkSession, rows: list[tuple[str | None, bytearray | None]]) -> DataFrame:
    """Jobs that have not ended: nothing but their keys is known."""
    return spark.createDataFrame([(*row, *[None] * 5) for row in rows], COLUMNS)


def _one_after_another(key: str, jobs: int, *, run: float, turn: float) -> list[Row]:
    """Jobs of a key that all waited from the start."""
    starts = [NOON + timedelta(seconds=1 + number * (run + turn)) for number in range(jobs)]
    return [(key, None, "p", 1, NOON, started, started + timedelta(seconds=run)) for started in starts]


def _turn(spark: SparkSession, rows: list[Row]) -> tuple[float, bool]:
    [hot] = weigh(spark.createDataFrame(rows, COLUMNS), ORDERED).slowest
    assert hot.time is not None
    return round(hot.time.turn_seconds, 4), hot.time.is_turn_measured


def _facts(time: KeyTime | None) -> tuple[int, float, float, bool]:
    """Jobs, run, turn, and whether it was measured; exact to a tenth of a millisecond."""
    assert time is not None
    return time.jobs, round(time.run_seconds, 4), round(time.turn_seconds, 4), time.is_turn_measured
