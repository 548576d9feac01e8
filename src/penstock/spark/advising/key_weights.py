"""Jobs by partition, for every number of partitions at once, and how long keys need, counted by Spark.

Each key's hash is computed once; a partition is its remainder. What comes back are 2,080 sums, however many keys
there are, and the times of the few keys that need the longest.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as f

from penstock.model.rules import QueueRules
from penstock.spark.advising.advice import MOST_PARTITIONS, Weights
from penstock.spark.key_partition import key_bits
from penstock.spark.reporting.figures import HotKey
from penstock.spark.reporting.job_times import seconds
from penstock.spark.reporting.key_time import ENOUGH, STATED_TURN_SECONDS
from penstock.spark.reporting.turns import count_runs, find_mean_run, measure_turns, time_key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["weigh"]

MOST_SLOW_KEYS = 8


def weigh(jobs: DataFrame, rules: QueueRules) -> Weights:
    """The weights of jobs with the columns key (text) and key_bytes (where a key is no text), partition, attempt, and
    their times, which are null where they wait."""
    ran = f.when(
        f.col("started_at").isNotNull(), f.greatest(f.lit(0.0), seconds("finished_at") - seconds("started_at"))
    )
    timed = jobs.select(
        f.coalesce(f.col("key_bytes"), f.col("key").cast("binary")).alias("raw"),
        "partition",
        "attempt",
        seconds("enqueued_at").alias("enqueued"),
        seconds("finished_at").alias("finished"),
        ran.alias("run"),
    ).persist(StorageLevel.MEMORY_AND_DISK)
    per_key = (
        timed.groupBy("raw")
        .agg(f.count("*").alias("jobs"), *count_runs())
        .withColumn("bits", key_bits(f.col("raw")))
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    try:
        keyed = per_key.where(f.col("raw").isNotNull())
        totals = per_key.agg(
            f.coalesce(f.sum("jobs"), f.lit(0)).alias("jobs"),
            f.coalesce(f.sum(f.when(f.col("raw").isNull(), f.col("jobs"))), f.lit(0)).alias("unkeyed"),
            f.count("raw").alias("keys"),
            f.sum("ran").alias("ran"),
            f.sum("runs").alias("runs"),
        ).collect()[0]
        run_seconds = totals["ran"] / totals["runs"] if totals["runs"] else None
        hottest = keyed.orderBy(f.desc("jobs"), "raw").limit(1).collect()
        slowest = _find_slowest(timed, keyed, totals["jobs"] - totals["unkeyed"], run_seconds or 0.0, rules)
        jobs_a_second = _measure_speed(timed)
        partitions = _spread(keyed)
    finally:
        per_key.unpersist()
        timed.unpersist()
    return Weights(
        jobs=totals["jobs"],
        unkeyed_jobs=totals["unkeyed"],
        keys=totals["keys"],
        hottest_key=_name(hottest[0]["raw"]) if hottest else None,
        hottest_jobs=hottest[0]["jobs"] if hottest else 0,
        partitions=partitions,
        slowest=slowest,
        run_seconds=run_seconds,
        jobs_a_second=jobs_a_second,
    )


def _spread(keyed: DataFrame) -> dict[int, list[int]]:
    """The jobs of each partition, for each number of them."""
    number = f.explode(f.sequence(f.lit(1), f.lit(MOST_PARTITIONS))).alias("partitions")
    spread = (
        keyed.select("jobs", "bits", number)
        .groupBy("partitions", f.pmod(f.col("bits"), f.col("partitions")).alias("partition"))
        .agg(f.sum("jobs").alias("jobs"))
        .collect()
    )
    partitions: dict[int, list[int]] = defaultdict(list)
    for row in spread:
        own = partitions[row["partitions"]]
        own.extend([0] * (row["partitions"] - len(own)))
        own[row["partition"]] = row["jobs"]
    return dict(partitions)


def _find_slowest(timed: DataFrame, keyed: DataFrame, jobs: int, usual: float, rules: QueueRules) -> list[HotKey]:
    """The keys that need the longest, where the jobs of a key wait for each other."""
    if rules.per_key is None:
        return []
    top = keyed.orderBy(f.desc(f.col("jobs") * (_mean_run(usual) + STATED_TURN_SECONDS)), "raw").limit(MOST_SLOW_KEYS)
    # Where several of a key run at once, a job does not follow the one before it.
    turns = measure_turns(timed, top, "raw") if rules.per_key == 1 else {}
    found = []
    for row in top.collect():
        mean = find_mean_run(row["ran"], row["runs"], usual)
        time = time_key(row["jobs"], mean, turns.get((bytes(row["raw"]),)), rules.run or 1)
        found.append(HotKey(_name(row["raw"]), row["jobs"], row["jobs"] / jobs, time))
    return sorted(found, key=lambda hot: -hot.time.seconds if hot.time is not None else 0)


def _mean_run(usual: float) -> Column:
    """`find_mean_run`, for every key."""
    return f.when(f.col("runs") >= ENOUGH, f.col("ran") / f.col("runs")).otherwise(f.lit(usual))


def _measure_speed(timed: DataFrame) -> float | None:
    """Jobs a second of a busy partition: half of all jobs ended in a second in which their partition ended so many."""
    ended = timed.where(f.col("run").isNotNull())
    by_second = ended.groupBy("partition", f.floor("finished").alias("second")).agg(f.count("*").alias("jobs"))
    speed: float | None = by_second.agg(f.percentile("jobs", 0.5, f.col("jobs"))).collect()[0][0]
    return speed


def _name(raw: bytes) -> str:
    """A key as it can be shown."""
    return bytes(raw).decode(errors="backslashreplace")
