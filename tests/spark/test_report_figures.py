"""The figures of a report, against the same counted in plain Python."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from tests.database.error_shapes import SHAPES

from penstock.model.rules import QueueRules
from penstock.spark.reporting.error_shape import NAMES, PATTERNS, QUOTED, cause_of
from penstock.spark.reporting.figures import Figures, Percentiles
from penstock.spark.reporting.measure import measure
from penstock.storage.schema import OURS

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
HISTORY = """id long, queue string, partition string, task string, key string, load string, outcome string,
    attempt int, error string, failures string, enqueued_at timestamp, started_at timestamp, finished_at timestamp,
    worker string"""
WAITING = "queue string, state string, enqueued_at timestamp"


class Row(NamedTuple):
    """A job of the history, in the order of its columns."""

    id: int
    queue: str
    partition: str
    task: str
    key: str | None
    load: str | None
    outcome: str
    attempt: int
    error: str | None
    failures: str | None
    enqueued_at: datetime
    started_at: datetime | None
    finished_at: datetime
    worker: str | None

    @property
    def wait(self) -> float | None:
        if self.started_at is None or self.attempt != 1:
            return None
        return (self.started_at - self.enqueued_at).total_seconds()

    @property
    def run(self) -> float | None:
        return None if self.started_at is None else (self.finished_at - self.started_at).total_seconds()


def made_up(count: int = 700) -> list[Row]:
    """Three queues, skewed keys, four ends, in ten minutes before noon."""
    chance = random.Random(4)
    rows = []
    for number in range(count):
        queue = chance.choice(["orders", "orders", "mails", "ledger"])
        key = f"k-{int(chance.random() ** 3 * 40)}" if queue != "mails" else None
        outcome = chance.choices(["succeeded", "failed", "cancelled", "expired"], [90, 6, 2, 2])[0]
        finished = NOW - timedelta(seconds=chance.uniform(0, 600))
        has_run = outcome in ("succeeded", "failed")
        started = finished - timedelta(seconds=chance.expovariate(5)) if has_run else None
        error = f"ValueError: order {number} has no address\n  File x"
        rows.append(
            Row(
                number,
                queue,
                f"{queue}__p{number % 3}",
                chance.choice(["ship", "bill"]),
                key,
                "backfill" if queue == "ledger" else None,
                outcome,
                3 if outcome == "failed" else chance.choices([1, 2, 9], [90, 8, 2])[0],
                error if outcome == "failed" else None,
                json.dumps([{"attempt": 1, "error": error, "at": finished.isoformat()}] * 3)
                if outcome == "failed"
                else None,
                (started or finished) - timedelta(seconds=chance.expovariate(0.2)),
                started,
                finished,
                chance.choice(["w1", "w1", "w2"]) if has_run else None,
            )
        )
    return rows


WAITS = [
    ("orders" if number % 3 else "mails", state, NOW - timedelta(seconds=age))
    for number, (state, age) in enumerate(
        [("ready", 0.2), ("ready", 5), ("running", 5), ("scheduled", 4_000), ("ready", 90), ("blocked", 900_000)]
    )
]


def percentiles(values: Iterable[float | None]) -> Percentiles:
    """As Spark counts them, to the microsecond."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return Percentiles()
    at: list[Any] = [pytest.approx(known[math.ceil(share * len(known)) - 1], abs=2e-6) for share in (0.5, 0.9, 0.99)]
    return Percentiles(*at)


def gini(sizes: Iterable[int]) -> float:
    counts = list(sizes)
    apart = sum(abs(one - other) for one in counts for other in counts)
    return apart / (2 * len(counts) * sum(counts))


@pytest.fixture
def measured(spark: SparkSession) -> Callable[..., Figures]:
    def of(rows: list[Row], waits: list[Any] = WAITS, **options: Any) -> Figures:
        return measure(spark.createDataFrame(rows, HISTORY), spark.createDataFrame(waits, WAITING), now=NOW, **options)

    return of


def test_every_figure_is_what_plain_python_counts(measured: Callable[..., Figures]) -> None:
    rows = made_up()
    figures = measured(rows)
    assert (figures.ended, figures.outcomes) == (len(rows), Counter(row.outcome for row in rows))
    assert (figures.wait, figures.run) == (percentiles(r.wait for r in rows), percentiles(r.run for r in rows))
    assert (figures.start, figures.end) == (min(r.finished_at for r in rows), max(r.finished_at for r in rows))
    assert figures.retried == sum(row.attempt > 1 for row in rows)
    assert figures.extra_attempts == sum(row.attempt - 1 for row in rows)

    assert figures.moment_seconds == 10
    assert figures.moments[0].at.second % 10 == 0
    for moment in figures.moments:
        of_moment = [row for row in rows if moment.at <= row.finished_at < moment.at + figures.moment]
        assert moment.outcomes == Counter(row.outcome for row in of_moment)
        assert (moment.wait, moment.run) == (
            percentiles(r.wait for r in of_moment),
            percentiles(r.run for r in of_moment),
        )
        assert sum(moment.causes.values()) == sum(row.outcome in ("failed", "expired") for row in of_moment)
    assert sum(moment.jobs for moment in figures.moments) == figures.ended

    tasks = Counter((row.queue, row.task) for row in rows)
    assert {(task.queue, task.task): task.jobs for task in figures.tasks} == tasks
    assert [task.jobs for task in figures.tasks] == sorted(tasks.values(), reverse=True)
    for task in figures.tasks:
        of_task = [row for row in rows if (row.queue, row.task) == (task.queue, task.task)]
        assert task.outcomes == Counter(row.outcome for row in of_task)
        assert task.retried == sum(row.attempt > 1 for row in of_task)
        assert (task.wait, task.run) == (percentiles(r.wait for r in of_task), percentiles(r.run for r in of_task))

    assert {a.attempt: a.outcomes for a in figures.attempts} == {
        attempt: Counter(row.outcome for row in rows if min(row.attempt, 6) == attempt) for attempt in (1, 2, 3, 6)
    }
    failed = figures.outcomes["failed"]
    assert [(cause.text, cause.count) for cause in figures.causes] == [
        ("ValueError: order … has no address", failed),
        ("expired", figures.outcomes["expired"]),
    ]
    assert figures.causes[0].tasks == ["bill", "ship"]
    assert [(cause.text, cause.count) for cause in figures.attempt_causes] == [(figures.causes[0].text, 3 * failed)]

    keyed = Counter((row.queue, row.key) for row in rows if row.key is not None)
    assert [skew.queue for skew in figures.keys] == ["orders", "ledger"]
    for skew in figures.keys:
        sizes = {key: jobs for (queue, key), jobs in keyed.items() if queue == skew.queue}
        assert (skew.keys, skew.jobs) == (len(sizes), sum(sizes.values()))
        assert skew.gini == pytest.approx(gini(sizes.values()))
        assert [hot.jobs for hot in skew.hottest] == sorted(sizes.values(), reverse=True)[:8]
        assert all(hot.jobs == sizes[hot.key] and hot.share == hot.jobs / skew.jobs for hot in skew.hottest)
        assert (skew.lorenz[0], skew.lorenz[-1]) == ((0.0, 0.0), (1.0, 1.0))

    parts = Counter((row.queue, row.partition) for row in rows)
    assert {(part.queue, part.partition): part.jobs for part in figures.partitions} == parts
    workers = Counter(row.worker for row in rows if row.worker is not None)
    assert [(each.worker, each.jobs, sum(each.moments)) for each in figures.workers] == [
        (name, jobs, jobs) for name, jobs in workers.most_common()
    ]
    for worker in figures.workers:
        assert worker.run_seconds == pytest.approx(sum(row.run or 0 for row in rows if row.worker == worker.worker))
    assert figures.worker_count == 2
    assert [(load.load, load.jobs) for load in figures.loads] == [("backfill", sum(r.queue == "ledger" for r in rows))]

    assert figures.waiting.states == {"ready": 3, "running": 1, "scheduled": 1, "blocked": 1}
    assert [(age.below_seconds, age.jobs) for age in figures.waiting.ages if age.jobs] == [
        (1.0, 1),
        (10.0, 2),
        (600.0, 1),
        (21_600.0, 1),
        (None, 1),
    ]
    assert [(each.queue, each.jobs) for each in figures.waiting.queues] == [("orders", 4), ("mails", 2)]
    assert figures.waiting.oldest_seconds == pytest.approx(900_000)


def test_the_keys_of_a_queue_that_keeps_order_have_the_time_they_need(measured: Callable[..., Figures]) -> None:
    rows = made_up(200)
    first = next(row for row in rows if row.queue == "orders" and row.outcome == "succeeded")
    begin = NOW - timedelta(seconds=500)
    for number in range(1_000):
        started = begin + timedelta(milliseconds=7 * number)
        finished = started + timedelta(milliseconds=2)
        job = first._replace(id=1_000 + number, key="hot", attempt=1, enqueued_at=begin)
        rows.append(job._replace(started_at=started, finished_at=finished))
    figures = measured(rows, ordered={"orders": QueueRules(order="key")})
    orders, ledger = figures.keys
    hot = orders.hottest[0]
    assert (orders.queue, hot.key, orders.slowest, orders.advised_run) == ("orders", "hot", hot, 100)
    assert hot.time is not None
    assert (hot.time.jobs, hot.time.is_turn_measured) == (1_000, True)
    assert (hot.time.run_seconds, hot.time.turn_seconds) == pytest.approx((0.002, 0.005), abs=1e-5)
    assert hot.time.seconds == pytest.approx(7, rel=0.01)
    # Others of the queue were seen too seldom: theirs is the run of all, and a stated turn.
    other = orders.hottest[-1]
    runs = [row.run for row in rows if row.queue == "orders" and row.key is not None and row.run is not None]
    assert other.time is not None
    assert (other.time.run_seconds, other.time.turn_seconds) == pytest.approx((sum(runs) / len(runs), 0.005))
    assert not other.time.is_turn_measured
    assert (ledger.slowest, ledger.advised_run) == (None, None)
    limited = measured(rows, ordered={"orders": QueueRules(order="key", limit=2)}).keys[0]
    assert (limited.slowest is not None, limited.advised_run) == (True, None)


def test_since_and_queue_leave_out_all_others(measured: Callable[..., Figures]) -> None:
    rows, since = made_up(), NOW - timedelta(seconds=200)
    figures = measured(rows, since=since, queue="orders")
    meant = [row for row in rows if row.queue == "orders" and row.finished_at >= since]
    assert (figures.ended, figures.since, figures.queue) == (len(meant), since, "orders")
    assert {task.queue for task in figures.tasks} == {skew.queue for skew in figures.keys} == {"orders"}
    assert figures.waiting.jobs == 4
    assert sum(cause.count for cause in figures.attempt_causes) == 3 * sum(row.error is not None for row in meant)


def test_nothing_one_job_and_jobs_that_never_ran_have_figures(measured: Callable[..., Figures]) -> None:
    nothing = measured([], [])
    assert (nothing.ended, nothing.moments, nothing.waiting.jobs, nothing.jobs_a_second) == (0, [], 0, None)
    one = next(row for row in made_up() if row.outcome == "cancelled")
    figures = measured([one], [])
    assert (figures.ended, figures.moments[0].jobs, len(figures.moments)) == (1, 1, 1)
    assert (figures.wait, figures.run, figures.workers, figures.causes) == (Percentiles(), Percentiles(), [], [])


def test_a_cause_is_the_shape_that_the_database_makes_of_the_error(spark: SparkSession) -> None:
    errors = spark.createDataFrame(list(enumerate([*SHAPES, "word " * 5_000])), "n int, error string")
    said = errors.select("n", cause_of(f.col("error")).alias("cause")).orderBy("n").collect()
    assert [row["cause"] for row in said] == [*SHAPES.values(), "word " * 40]


def test_the_patterns_are_those_of_the_database() -> None:
    sql = OURS.functions["11_causes.sql"].replace("''", "'")
    places = [sql.index(f"'{pattern}'") for pattern in (NAMES, QUOTED, *PATTERNS)]
    assert places == sorted(places)
    assert sql.count("regexp_replace(") == 1 + len(PATTERNS)
