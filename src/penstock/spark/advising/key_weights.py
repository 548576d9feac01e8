"""Jobs by partition, for every number of partitions at once, counted by Spark.

Each key's hash is computed once; a partition is its remainder. What comes back are 2,080 sums, however many keys
there are.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as f

from penstock.spark.advising.advice import MOST_PARTITIONS, Weights
from penstock.spark.key_partition import key_bits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["weigh"]


def weigh(jobs: DataFrame) -> Weights:
    """The weights of jobs with the columns key (text) and key_bytes (where a key is no text)."""
    raw = f.coalesce(f.col("key_bytes"), f.col("key").cast("binary"))
    per_key = (
        jobs.groupBy(raw.alias("raw"))
        .agg(f.count("*").alias("jobs"))
        .withColumn("bits", key_bits(f.col("raw")))
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    try:
        keyed = per_key.where(f.col("raw").isNotNull())
        totals = per_key.agg(
            f.coalesce(f.sum("jobs"), f.lit(0)).alias("jobs"),
            f.coalesce(f.sum(f.when(f.col("raw").isNull(), f.col("jobs"))), f.lit(0)).alias("unkeyed"),
            f.count("raw").alias("keys"),
        ).collect()[0]
        hottest = keyed.orderBy(f.desc("jobs"), "raw").limit(1).collect()
        number = f.explode(f.sequence(f.lit(1), f.lit(MOST_PARTITIONS))).alias("partitions")
        spread = (
            keyed.select("jobs", "bits", number)
            .groupBy("partitions", f.pmod(f.col("bits"), f.col("partitions")).alias("partition"))
            .agg(f.sum("jobs").alias("jobs"))
            .collect()
        )
    finally:
        per_key.unpersist()
    partitions: dict[int, list[int]] = defaultdict(list)
    for row in spread:
        own = partitions[row["partitions"]]
        own.extend([0] * (row["partitions"] - len(own)))
        own[row["partition"]] = row["jobs"]
    return Weights(
        jobs=totals["jobs"],
        unkeyed_jobs=totals["unkeyed"],
        keys=totals["keys"],
        hottest_key=_name(hottest[0]["raw"]) if hottest else None,
        hottest_jobs=hottest[0]["jobs"] if hottest else 0,
        partitions=dict(partitions),
    )


def _name(raw: bytes) -> str:
    """A key as it can be shown."""
    return bytes(raw).decode(errors="backslashreplace")
