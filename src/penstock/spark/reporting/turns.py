"""Runs and turns of keys, measured by Spark from when jobs started and ended.

A turn is seen where a job was there already when the one before it ended, and nothing but its turn kept it from
starting. What waited for longer than a second waited for something else: a delay, a pause, a worker that was away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as f

from penstock.spark.reporting.key_time import ENOUGH, STATED_TURN_SECONDS, KeyTime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Turn", "count_runs", "find_mean_run", "measure_turns", "time_key"]

_LONGEST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Turn:
    """The median of a key's turns, and of how many."""

    seconds: float
    seen: int


def measure_turns(jobs: DataFrame, hot: DataFrame, *by: str) -> dict[tuple[Any, ...], Turn]:
    """The turns of the keys in `hot`, by these columns; of the jobs attempt, enqueued, finished and run are needed."""
    started = f.col("finished") - f.col("run")
    before = f.lag("finished").over(Window.partitionBy(*by).orderBy("started"))
    turn = f.col("started") - f.col("before")
    is_turn = (f.col("attempt") == 1) & (f.col("enqueued") <= f.col("before")) & turn.between(0, _LONGEST_SECONDS)
    measured = (
        jobs.join(f.broadcast(hot.select(*by)), list(by))
        .where(f.col("run").isNotNull())
        .select(*by, "attempt", "enqueued", "finished", started.alias("started"))
        .withColumn("before", before)
        .where(is_turn)
        .groupBy(*by)
        .agg(f.percentile_approx(turn, 0.5).alias("turn"), f.count("*").alias("turns"))
    )
    return {tuple(_plain(row[name]) for name in by): Turn(row["turn"], row["turns"]) for row in measured.collect()}


def count_runs() -> tuple[Any, Any]:
    """The columns of a group that `time_key` reads: how long its jobs ran together, and how many of them ran."""
    return f.coalesce(f.sum("run"), f.lit(0.0)).alias("ran"), f.count("run").alias("runs")


def find_mean_run(ran: float, runs: int, usual: float) -> float:
    """How long a job of a key runs; as usual where too few have."""
    return ran / runs if runs >= ENOUGH else usual


def time_key(jobs: int, run_seconds: float, turn: Turn | None, run: int) -> KeyTime:
    """What a key needs, from its turns where enough were seen; `run`: how many jobs of a key share one in its queue."""
    if turn is not None and turn.seen >= ENOUGH:
        return KeyTime(jobs, run_seconds, turn.seconds, True)
    return KeyTime(jobs, run_seconds, STATED_TURN_SECONDS / run, False)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value
