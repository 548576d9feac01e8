"""Why jobs and attempts failed, counted by Spark."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from penstock.spark.reporting.figures import Cause
from penstock.spark.reporting.job_times import cause_of, instant, seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["COLOURED_CAUSES", "attempt_causes", "causes", "causes_by_moment"]

MOST_CAUSES = 12
# As many can be told apart in a plot; the others are counted there together, under the empty text.
COLOURED_CAUSES = 5


def causes(jobs: DataFrame) -> list[Cause]:
    """Why jobs failed for good, the most frequent first."""
    counted = (
        jobs.where(f.col("cause").isNotNull())
        .groupBy("cause")
        .agg(
            f.count("*").alias("times"),
            f.sort_array(f.collect_set("task")).alias("tasks"),
            f.max("finished").alias("last"),
        )
        .orderBy(f.desc("times"), "cause")
        .limit(MOST_CAUSES)
    )
    return [Cause(row["cause"], row["times"], row["tasks"], instant(row["last"])) for row in counted.collect()]


def causes_by_moment(jobs: DataFrame, found: list[Cause]) -> dict[int, dict[str, int]]:
    """How many jobs failed for each of the first causes, moment by moment."""
    counted: dict[int, dict[str, int]] = defaultdict(dict)
    if not found:
        return counted
    first = [cause.text for cause in found[:COLOURED_CAUSES]]
    shown = f.when(f.col("cause").isin(first), f.col("cause")).otherwise("").alias("cause")
    failed = jobs.where(f.col("cause").isNotNull()).groupBy("moment", shown).agg(f.count("*").alias("jobs"))
    for row in failed.collect():
        counted[row["moment"]][row["cause"]] = row["jobs"]
    return counted


def attempt_causes(jobs: DataFrame) -> list[Cause]:
    """Why attempts failed, also those of jobs that succeeded later."""
    each = f.explode(f.from_json("failures", "array<struct<error string, at timestamp>>")).alias("each")
    counted = (
        jobs.where(f.col("failures").isNotNull())
        .select("task", each)
        .select("task", cause_of(f.col("each.error")).alias("cause"), seconds("each.at").alias("at"))
        .groupBy("cause")
        .agg(
            f.count("*").alias("times"),
            f.sort_array(f.collect_set("task")).alias("tasks"),
            f.max("at").alias("last"),
        )
        .orderBy(f.desc("times"), "cause")
        .limit(MOST_CAUSES)
    )
    return [Cause(row["cause"], row["times"], row["tasks"], instant(row["last"])) for row in counted.collect()]
