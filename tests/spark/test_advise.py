"""Keys weighed by Spark, against the routing itself."""

from __future__ import annotations

from collections import Counter

from pyspark.sql import SparkSession

from penstock.routing import partition_of
from penstock.spark.advising.key_weights import weigh


def test_jobs_are_weighed_as_they_would_be_routed(spark: SparkSession) -> None:
    sizes = {f"customer-{number}": 1 + 600 // (1 + number) for number in range(90)} | {"": 3, "日本": 2}
    rows: list[tuple[str | None, bytearray | None]] = [(key, None) for key, size in sizes.items() for _ in range(size)]
    rows += [(None, bytearray(b"\xff\x00raw"))] * 40
    rows += [(None, None)] * 7
    weights = weigh(spark.createDataFrame(rows, "key string, key_bytes binary").repartition(3))
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
    weights = weigh(spark.createDataFrame([], "key string, key_bytes binary"))
    assert (weights.jobs, weights.keys, weights.hottest_key, weights.partitions) == (0, 0, None, {})
