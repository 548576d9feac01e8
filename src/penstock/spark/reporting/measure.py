"""From history to figures, on Spark: everything is counted where it lies, and only what a page can show comes back.

The history is read once. What the figures need of it is kept by Spark while they are counted, so that all of them
speak of the same jobs however many end meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import functions as f

from penstock.drawing.axis import moment_seconds, moment_start
from penstock.model.rules import QueueRules
from penstock.spark.reporting import distribution
from penstock.spark.reporting.failure_causes import count_attempt_causes, count_causes, count_causes_by_moment
from penstock.spark.reporting.figures import LAST_ATTEMPT, Attempts, Figures, Moment, Percentiles, TaskFigures
from penstock.spark.reporting.job_times import add_times, percentiles_of, read_percentiles, seconds, to_instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["HISTORY_COLUMNS", "WAITING_COLUMNS", "measure"]

# Of each, what the figures need: arguments and results, the widest columns, are never read.
HISTORY_COLUMNS = (
    *("queue", "partition", "task", "key", "load", "outcome", "attempt", "error"),
    *("failures", "enqueued_at", "started_at", "finished_at", "worker"),
)
WAITING_COLUMNS = ("queue", "state", "enqueued_at")

MOST_TASKS = 200


def measure(
    history: DataFrame,
    waiting: DataFrame,
    *,
    now: datetime,
    since: datetime | None = None,
    queue: str | None = None,
    ordered: Mapping[str, QueueRules] | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Figures:
    """The figures of a history and of jobs that have not ended; of each the columns above are needed.

    `ordered` has the rules of the queues that run the jobs of a key one by one.
    """
    if queue is not None:
        history, waiting = (frame.where(f.col("queue") == queue) for frame in (history, waiting))
    if since is not None:
        history = history.where(f.col("finished_at") >= f.lit(since))
    jobs = add_times(history).persist(StorageLevel.MEMORY_AND_DISK)
    waits = waiting.select("queue", "state", seconds("enqueued_at").alias("enqueued"))
    try:
        on_progress("reading the history")
        first, last = jobs.agg(f.min("finished"), f.max("finished")).collect()[0]
        on_progress("counting what waits")
        has_not_ended = distribution.measure_waiting(waits, now)
        about: dict[str, Any] = {"made_at": now, "since": since, "queue": queue, "waiting": has_not_ended}
        if first is None:
            return Figures(**about)
        return Figures(**about, **_measure_ended(jobs, to_instant(first), to_instant(last), ordered or {}, on_progress))
    finally:
        jobs.unpersist()


def _measure_ended(
    jobs: DataFrame,
    first: datetime,
    last: datetime,
    ordered: Mapping[str, QueueRules],
    on_progress: Callable[[str], None],
) -> dict[str, Any]:
    """The figures of what ended."""
    step = moment_seconds((last - first).total_seconds())
    start = moment_start(first, step)
    moment_count = int((last - start).total_seconds() / step) + 1
    moment = f.floor((f.col("finished") - f.lit(start.timestamp())) / f.lit(step)).cast("int")
    jobs = jobs.withColumn("moment", f.greatest(f.lit(0), f.least(f.lit(moment_count - 1), moment)))
    on_progress("counting what ended")
    counts = _Counts(jobs)
    on_progress("measuring how long it took")
    lengths = _measure_lengths(jobs)
    on_progress("looking for causes")
    reasons = count_causes(jobs)
    by_moment = count_causes_by_moment(jobs, reasons)
    attempts_failed = count_attempt_causes(jobs)
    on_progress("weighing keys, partitions and workers")
    overall = lengths[None, None, None]
    return {
        "start": first,
        "end": last,
        "moment_seconds": step,
        "outcomes": counts.outcomes(),
        "retried": counts.retried(),
        "extra_attempts": counts.extra_attempts,
        "wait": overall[0],
        "run": overall[1],
        "moments": [
            Moment(
                start + timedelta(seconds=number * step),
                counts.outcomes(moment=number),
                *lengths.get((number, None, None), (Percentiles(), Percentiles())),
                by_moment.get(number, {}),
            )
            for number in range(moment_count)
        ],
        "tasks": counts.tasks(lengths),
        "attempts": counts.attempts(),
        "causes": reasons,
        "attempt_causes": attempts_failed,
        "keys": distribution.measure_keys(jobs, ordered),
        "partitions": distribution.measure_partitions(jobs),
        "workers": distribution.measure_workers(jobs, moment_count),
        "worker_count": counts.workers,
        "loads": distribution.measure_loads(jobs),
    }


class _Counts:
    """How many jobs ended in which way: over time, by task, and by attempt, counted in one go."""

    def __init__(self, jobs: DataFrame) -> None:
        capped = jobs.withColumn("attempts", f.least(f.col("attempt").cast("int"), f.lit(LAST_ATTEMPT)))
        sets = [["outcome", "moment"], ["outcome", "attempts"], ["outcome", "queue", "task", "attempts"]]
        by = ("outcome", "moment", "queue", "task", "attempts")
        columns = [[f.col(name) for name in each] for each in sets]
        grouped = capped.groupingSets(columns, *(f.col(name) for name in by)).agg(f.count("*").alias("jobs"))
        self._rows = sorted(grouped.collect(), key=lambda row: (-row["jobs"], row["outcome"]))
        self.extra_attempts, self.workers = jobs.agg(
            f.sum(f.greatest(f.lit(0), f.col("attempt") - 1)), f.count_distinct("worker")
        ).collect()[0]

    def outcomes(self, **only: int) -> dict[str, int]:
        """Jobs by outcome, of one moment or of one attempt; most jobs first."""
        [name] = only or ["attempts"]
        counted: dict[str, int] = {}
        for row in self._rows:
            if row["task"] is None and row[name] is not None and row[name] == only.get(name, row[name]):
                counted[row["outcome"]] = counted.get(row["outcome"], 0) + row["jobs"]
        return dict(sorted(counted.items(), key=lambda item: -item[1]))

    def retried(self) -> int:
        """Jobs that needed more than one attempt."""
        return sum(row["jobs"] for row in self._rows if row["task"] is None and (row["attempts"] or 0) > 1)

    def attempts(self) -> list[Attempts]:
        """Jobs by how many attempts they needed."""
        numbers = sorted({row["attempts"] for row in self._rows if row["attempts"] is not None})
        return [Attempts(number, self.outcomes(attempts=number)) for number in numbers]

    def tasks(self, lengths: _Lengths) -> list[TaskFigures]:
        """Each task's figures, those with most jobs first."""
        outcomes: dict[tuple[str, str], dict[str, int]] = {}
        retried: dict[tuple[str, str], int] = {}
        for row in self._rows:
            if row["task"] is not None:
                task = (row["queue"], row["task"])
                counted = outcomes.setdefault(task, {})
                counted[row["outcome"]] = counted.get(row["outcome"], 0) + row["jobs"]
                retried[task] = retried.get(task, 0) + (row["jobs"] if row["attempts"] > 1 else 0)
        largest = sorted(outcomes, key=lambda task: (-sum(outcomes[task].values()), task))[:MOST_TASKS]
        return [
            TaskFigures(
                *task, sum(outcomes[task].values()), outcomes[task], retried[task], *lengths[None, task[0], task[1]]
            )
            for task in largest
        ]


_Lengths = dict[tuple[int | None, str | None, str | None], tuple[Percentiles, Percentiles]]


def _measure_lengths(jobs: DataFrame) -> _Lengths:
    """Waits and runs of all jobs, of each moment and of each task, by (moment, queue, task)."""
    by = ("moment", "queue", "task")
    sets = [[f.col(name) for name in each] for each in ([], ["moment"], ["queue", "task"])]
    grouped = jobs.groupingSets(sets, *(f.col(name) for name in by)).agg(percentiles_of("wait"), percentiles_of("run"))
    return {
        (row["moment"], row["queue"], row["task"]): (read_percentiles(row["wait"]), read_percentiles(row["run"]))
        for row in grouped.collect()
    }
