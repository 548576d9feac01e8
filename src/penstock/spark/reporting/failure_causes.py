"""Why jobs and attempts failed, counted by Spark."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from penstock.spark.reporting.error_shape import cause_of
from penstock.spark.reporting.figures import Cause
from penstock.spark.reporting.job_times import seconds, to_instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["COLOURED_CAUSES", "count_attempt_causes", "count_causes", "count_causes_by_moment"]

MOST_CAUSES = 12
# As many can be told apart in a plot; the others are counted there together, under the empty text.
COLOURED_CAUSES = 5


def count_causes(jobs: DataFrame) -> list[Cause]:
    """Why jobs failed for good, the most frequent first."""
    return _count(jobs.where(f.col("cause").isNotNull()).select("task", "cause", f.col("finished").alias("at")))


def count_causes_by_moment(jobs: DataFrame, found: list[Cause]) -> dict[int, dict[str, int]]:
    """How many jobs failed for each of the most frequent causes, moment by moment."""
    counted: dict[int, dict[str, int]] = defaultdict(dict)
    if not found:
        return counted
    first = [cause.text for cause in found[:COLOURED_CAUSES]]
    shown = f.when(f.col("cause").isin(first), f.col("cause")).otherwise("").alias("cause")
    failed = jobs.where(f.col("cause").isNotNull()).groupBy("moment", shown).agg(f.count("*").alias("jobs"))
    for row in failed.collect():
        counted[row["moment"]][row["cause"]] = row["jobs"]
    return counted


def count_attempt_causes(jobs: DataFrame) -> list[Cause]:
    """Why attempts failed, also those of jobs that succeeded later."""
    each = f.explode(f.from_json("failures", "array<struct<error string, at timestamp>>")).alias("each")
    return _count(
        jobs.where(f.col("failures").isNotNull())
        .select("task", each)
        .select("task", cause_of(f.col("each.error")).alias("cause"), seconds("each.at").alias("at"))
    )


def _count(failures: DataFrame) -> list[Cause]:
    """The causes of failures, given with their task and when they happened; the most frequent first."""
    counted = (
        failures.groupBy("cause")
        .agg(
            f.count("*").alias("times"),
            f.sort_array(f.collect_set("task")).alias("tasks"),
            f.max("at").alias("last"),
        )
        .orderBy(f.desc("times"), "cause")
        .limit(MOST_CAUSES)
    )
    return [Cause(row["cause"], row["times"], row["tasks"], to_instant(row["last"])) for row in counted.collect()]
