"""History of one day and queue, hot and cold: how many rows leave PostgreSQL and Parquet, against those asked for, and
how long it takes against reading all of it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import penstock.spark as ps
from bench.past import make_past
from bench.run import Run
from bench.server import connect
from penstock import App

QUESTION = "Does a history of one day and queue read only those?"

CORES = 2
DAYS = 5
QUEUES = 5


def measure(run: Run) -> None:
    each = run.size(20_000, 2_000)
    spark = ps.session(f"local[{CORES}]")
    rows_read: dict[str, list[float]] = {"PostgreSQL": [], "Parquet": []}
    chosen: list[float] = []
    whole: list[float] = []
    day = (datetime.now(UTC) - timedelta(days=2)).date()
    span = {"queue": "queue-2", "since": day, "until": day + timedelta(days=1)}
    with (
        run.server.database() as url,
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as lake,
        connect(url) as connection,
        App(url) as app,
    ):
        for is_cold in (True, False):
            for days in range(DAYS):
                for queue in range(QUEUES):
                    make_past(connection, f"queue-{queue}", each, days)
            if is_cold:
                ps.archive(spark, app, lake)
        connection.execute("analyze")
        for _ in run.repeats():
            began = time.perf_counter()
            frame = ps.history(spark, app, lake, **span)
            found = len(frame.collect())
            chosen.append(time.perf_counter() - began)
            if found != 2 * each:
                raise RuntimeError(f"{found} of {2 * each} rows were found")
            for source, rows in _rows_read(frame).items():
                rows_read[source].append(rows)
            began = time.perf_counter()
            ps.history(spark, app, lake).write.format("noop").mode("overwrite").save()
            whole.append(time.perf_counter() - began)
    for source, values in rows_read.items():
        asked = [float(each)] * len(values)
        run.compare(f"rows that left {source}", "rows", values, "rows of that day and queue", asked, at_most=1.0)
    run.compare("one day and queue", "s", chosen, "all of history", whole)
    run.note(f"{DAYS} days, {QUEUES} queues, {each:,} jobs of each in the database and as many in the lake")
    spark.stop()


def _rows_read(frame: Any) -> dict[str, float]:
    """What each of the two sources gave out, by Spark's own count."""
    found = {"PostgreSQL": 0.0, "Parquet": 0.0}
    for leaf in _leaves(frame._jdf.queryExecution().executedPlan()):
        metrics = leaf.metrics()
        source = "Parquet" if metrics.contains("numFiles") else "PostgreSQL"
        found[source] += metrics.apply("numOutputRows").value()
    return found


def _leaves(plan: Any) -> Iterator[Any]:
    if plan.nodeName() == "AdaptiveSparkPlan":
        plan = plan.executedPlan()
    children = plan.children()
    if children.isEmpty():
        yield plan
    for index in range(children.size()):
        yield from _leaves(children.apply(index))
