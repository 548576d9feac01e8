"""The columns that every figure is counted from: a job's times in seconds, and the cause of its failure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from penstock.spark.reporting.error_shape import cause_of
from penstock.spark.reporting.figures import Percentiles

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["add_times", "percentiles_of", "read_percentiles", "seconds", "to_instant"]

_FAILURES = ("failed", "discarded", "expired")
_SHARES = [0.5, 0.9, 0.99]


def add_times(history: DataFrame) -> DataFrame:
    """A job's facts with its times as seconds, and its failure's cause."""
    enqueued, started, finished = (seconds(f"{name}_at") for name in ("enqueued", "started", "finished"))
    return history.select(
        "queue",
        f.col("partition").cast("string").alias("partition"),
        "task",
        f.col("key").cast("string").alias("key"),
        "load",
        "outcome",
        "attempt",
        "worker",
        "failures",
        enqueued.alias("enqueued"),
        finished.alias("finished"),
        # The worker's clock measures the run, the database's the rest: where they differ, a wait or run below 0 counts
        # as 0.
        f.when((f.col("attempt") == 1) & started.isNotNull(), f.greatest(f.lit(0.0), started - enqueued)).alias("wait"),
        f.when(started.isNotNull(), f.greatest(f.lit(0.0), finished - started)).alias("run"),
        f.when(f.col("outcome").isin(*_FAILURES), f.coalesce(cause_of(f.col("error")), f.col("outcome"))).alias(
            "cause"
        ),
    )


def seconds(column: str) -> Column:
    """An instant as seconds since 1970, to the microsecond."""
    return f.col(column).cast("double")


def to_instant(since_1970: float) -> datetime:
    """The same as Python has it."""
    return datetime.fromtimestamp(since_1970, UTC)


def percentiles_of(column: str) -> Column:
    """The shares that a report shows; `read_percentiles` reads them."""
    return f.percentile_approx(column, _SHARES).alias(column)


def read_percentiles(values: list[float] | None) -> Percentiles:
    """Percentiles as they came from Spark; nothing where nothing was timed."""
    return Percentiles(*values) if values else Percentiles()
