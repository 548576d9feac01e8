"""Who has how much, counted by Spark: keys, partitions, workers, loads, and what waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from penstock.drawing.axis import AGES_SECONDS
from penstock.model.rules import QueueRules
from penstock.spark.reporting.figures import (
    Age,
    HotKey,
    KeySkew,
    LoadFigures,
    PartitionFigures,
    Waiting,
    WaitingQueue,
    WorkerFigures,
)
from penstock.spark.reporting.job_times import to_instant
from penstock.spark.reporting.key_time import find_run
from penstock.spark.reporting.skew import gini, lorenz
from penstock.spark.reporting.turns import count_runs, find_mean_run, measure_turns, time_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["measure_keys", "measure_loads", "measure_partitions", "measure_waiting", "measure_workers"]

MOST_HOT_KEYS = 8
MOST_PARTITIONS = 512
MOST_WORKERS = 24
MOST_LOADS = 20


def measure_keys(jobs: DataFrame, ordered: Mapping[str, QueueRules]) -> list[KeySkew]:
    """The skew of each queue with keys, most jobs first; `ordered`: those that run the jobs of a key one by one."""
    keyed = jobs.where(f.col("key").isNotNull())
    per_key = keyed.groupBy("queue", "key").agg(f.count("*").alias("jobs"), *count_runs()).persist()
    try:
        sizes: dict[str, list[tuple[int, int]]] = defaultdict(list)
        ran: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
        counted = per_key.groupBy("queue", "jobs").agg(
            f.count("*").alias("keys"), f.sum("ran").alias("ran"), f.sum("runs").alias("runs")
        )
        for row in counted.collect():
            sizes[row["queue"]].append((row["jobs"], row["keys"]))
            ran[row["queue"]] = (ran[row["queue"]][0] + row["ran"], ran[row["queue"]][1] + row["runs"])
        total = {queue: sum(size * number for size, number in pairs) for queue, pairs in sizes.items()}
        rank = f.row_number().over(Window.partitionBy("queue").orderBy(f.desc("jobs"), "key"))
        top = per_key.withColumn("rank", rank).where(f.col("rank") <= MOST_HOT_KEYS)
        turns = measure_turns(keyed, top.where(f.col("queue").isin(list(ordered))), "queue", "key") if ordered else {}
        hottest: dict[str, list[HotKey]] = defaultdict(list)
        for row in sorted(top.collect(), key=lambda row: row["rank"]):
            queue, time = row["queue"], None
            if queue in ordered:
                usual = ran[queue][0] / max(1, ran[queue][1])
                mean = find_mean_run(row["ran"], row["runs"], usual)
                time = time_key(row["jobs"], mean, turns.get((queue, row["key"])), ordered[queue].run or 1)
            hottest[queue].append(HotKey(row["key"], row["jobs"], row["jobs"] / total[queue], time))
    finally:
        per_key.unpersist()
    return [
        KeySkew(
            queue,
            total[queue],
            sum(number for _, number in pairs),
            gini(pairs),
            hottest[queue],
            lorenz(pairs),
            _find_run(ordered.get(queue), hottest[queue]),
        )
        for queue, pairs in sorted(sizes.items(), key=lambda item: (-total[item[0]], item[0]))
    ]


def _find_run(rules: QueueRules | None, hottest: Sequence[HotKey]) -> int | None:
    return None if rules is None else find_run(rules, [hot.time for hot in hottest if hot.time is not None])


def measure_partitions(jobs: DataFrame) -> list[PartitionFigures]:
    """Each partition's part, in the order of their names as people count."""
    rows = (
        jobs.groupBy("queue", "partition")
        .agg(f.count("*").alias("jobs"), f.coalesce(f.sum("run"), f.lit(0.0)).alias("run"))
        .orderBy("queue", f.length("partition"), "partition")
        .limit(MOST_PARTITIONS)
        .collect()
    )
    return [PartitionFigures(row["queue"], row["partition"], row["jobs"], row["run"]) for row in rows]


def measure_loads(jobs: DataFrame) -> list[LoadFigures]:
    """The newest loads first."""
    of_loads = jobs.where(f.col("load").isNotNull())
    rows = (
        of_loads.groupBy("load")
        .agg(f.count("*").alias("jobs"), f.min("enqueued").alias("first"), f.max("finished").alias("last"))
        .orderBy(f.desc("first"), "load")
        .limit(MOST_LOADS)
        .collect()
    )
    outcomes: dict[str, dict[str, int]] = {row["load"]: {} for row in rows}
    ended = (
        of_loads.where(f.col("load").isin(list(outcomes))).groupBy("load", "outcome").agg(f.count("*").alias("jobs"))
    )
    for row in ended.collect() if rows else ():
        outcomes[row["load"]][row["outcome"]] = row["jobs"]
    return [
        LoadFigures(row["load"], row["jobs"], outcomes[row["load"]], to_instant(row["first"]), to_instant(row["last"]))
        for row in rows
    ]


def measure_workers(jobs: DataFrame, moment_count: int) -> list[WorkerFigures]:
    """What each worker ended, moment by moment, those that ended most first."""
    rows = (
        jobs.where(f.col("worker").isNotNull())
        .groupBy("worker")
        .agg(
            f.count("*").alias("jobs"),
            f.count_if(f.col("outcome") == "failed").alias("failed"),
            f.coalesce(f.sum("run"), f.lit(0.0)).alias("run"),
            f.min(f.col("finished") - f.coalesce("run", f.lit(0.0))).alias("first"),
            f.max("finished").alias("last"),
        )
        .orderBy(f.desc("jobs"), "worker")
        .limit(MOST_WORKERS)
        .collect()
    )
    steps: dict[str, list[int]] = {row["worker"]: [0] * moment_count for row in rows}
    by_moment = (
        jobs.where(f.col("worker").isin(list(steps))).groupBy("worker", "moment").agg(f.count("*").alias("jobs"))
    )
    for row in by_moment.collect() if rows else ():
        steps[row["worker"]][row["moment"]] = row["jobs"]
    return [
        WorkerFigures(
            row["worker"],
            row["jobs"],
            row["failed"],
            row["run"],
            to_instant(row["first"]),
            to_instant(row["last"]),
            steps[row["worker"]],
        )
        for row in rows
    ]


def measure_waiting(waits: DataFrame, now: datetime) -> Waiting:
    """Jobs that have not ended, by age, state and queue."""
    age = f.greatest(f.lit(0.0), f.lit(now.timestamp()) - f.col("enqueued"))
    # `step` is the index of the first limit above the age; that of the last limit plus one where the age is above all.
    step = f.lit(len(AGES_SECONDS))
    for number, limit in reversed(list(enumerate(AGES_SECONDS))):
        step = f.when(age < limit, number).otherwise(step)
    counted = waits.groupBy("queue", "state", step.alias("step")).agg(
        f.count("*").alias("jobs"), f.max(age).alias("oldest")
    )
    ages: list[dict[str, int]] = [defaultdict(int) for _ in range(len(AGES_SECONDS) + 1)]
    states: dict[str, int] = defaultdict(int)
    queues: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    oldest: dict[str, float] = defaultdict(float)
    for row in counted.collect():
        for counts in (ages[row["step"]], states, queues[row["queue"]]):
            counts[row["state"]] += row["jobs"]
        oldest[row["queue"]] = max(oldest[row["queue"]], row["oldest"])
    return Waiting(
        dict(states),
        max(oldest.values(), default=None),
        [Age(limit, dict(counts)) for limit, counts in zip((*AGES_SECONDS, None), ages, strict=True)] if states else [],
        sorted(
            (WaitingQueue(queue, dict(counts), oldest[queue]) for queue, counts in queues.items()),
            key=lambda waiting: (-waiting.jobs, waiting.queue),
        ),
    )
