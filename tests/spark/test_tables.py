"""Reading tables into Spark: each row says what `app.job` says, and filters are met in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from tests.spark.past import Past, live

from penstock import App, Job
from penstock.storage.history.bulk import RangeInterval
from penstock.storage.history.conditions import Condition


@pytest.fixture
def past(app: App) -> Past:
    return live(app)


def read(spark: SparkSession, app: App, table: str, **options: str) -> DataFrame:
    reader = spark.read.format("penstock").option("url", app.url).option("table", table)
    return reader.options(**options).load()


def told(row: Row, names: list[str]) -> dict[str, Any]:
    """What a row tells; times come from Spark without a zone, in that of this machine."""
    values = {name: row[name] for name in names}
    return {n: v.astimezone(UTC) if isinstance(v, datetime) else v for n, v in values.items()}


def known(job: Job, names: list[str]) -> dict[str, Any]:
    """What `app.job` tells."""
    return {name: getattr(job, name) for name in names}


def decoded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def test_every_row_of_every_table_says_what_the_app_says(spark: SparkSession, app: App, past: Past) -> None:
    same = ["id", "queue", "partition", "task", "tenant", "load", "attempt", "enqueued_at", "started_at", "worker"]
    finished = {row.id: row for row in read(spark, app, "finished", partitions="3").collect()}
    assert sorted(finished) == sorted(past.ended)
    for job_id, row in finished.items():
        job = app.job(job_id)
        names = [*same, "error", "finished_at"]
        assert told(row, names) == known(job, names)
        assert row.outcome == job.state
        assert decoded(row.args) == job.args
        assert decoded(row.result) == job.result
        assert row.key == (job.key if not isinstance(job.key, bytes) else "\\x" + job.key.hex())

    waiting = {row.id: row for row in read(spark, app, "jobs").collect()}
    assert sorted(waiting) == sorted(past.waiting)
    for job_id, row in waiting.items():
        job = app.job(job_id)
        names = [*same, "state", "priority", "run_at"]
        assert told(row, names) == known(job, names)
        assert decoded(row.args) == job.args

    failures = {(row.id, row.attempt, row.error, row.worker) for row in read(spark, app, "failures").collect()}
    assert failures == {
        (job_id, each.attempt, each.error, each.worker) for job_id in past.ended for each in app.job(job_id).failures
    }
    assert len(failures) == 5

    raw = read(spark, app, "finished", columns="key_bytes,id,priority,failures,attributes,day").collect()
    assert [row.key_bytes for row in raw if row.key_bytes is not None] == [b"\xff\x00raw"]
    assert raw[0].asDict().keys() == {"key_bytes", "id", "priority", "failures", "attributes", "day"}
    assert {row.day for row in raw} == {row.finished_at.astimezone(UTC).date() for row in finished.values()}


def test_only_rows_that_were_chosen_leave_postgresql(spark: SparkSession, app: App, past: Past) -> None:
    history = read(spark, app, "finished", columns="id,queue,task,outcome,key,finished_at")
    rows = history.collect()
    middle = sorted(row.finished_at for row in rows)[len(rows) // 2]
    moment = middle.astimezone(UTC).isoformat()
    choices: list[tuple[dict[str, str], Callable[[Row], bool]]] = [
        ({"queue": "007"}, lambda row: row.queue == "007"),
        ({"queue": "mail/é=1%", "outcome": "failed"}, lambda row: row.queue != "007" and row.outcome == "failed"),
        ({"since": moment, "task": "ship"}, lambda row: row.finished_at >= middle and row.task == "ship"),
        ({"until": moment}, lambda row: row.finished_at < middle),
        ({"key": "c-3"}, lambda row: row.key == "c-3"),
        ({"queue": "' or true; --"}, lambda row: False),
    ]
    for options, holds in choices:
        wanted = sorted(row.id for row in rows if holds(row))
        assert sorted(row.id for row in read(spark, app, "finished", **options).collect()) == wanted, options
    # One part of a query never sees the filters of another, as it would if Spark handed them on.
    both = history.where("outcome = 'failed'").union(history.where("queue = '007' or outcome = 'failed'"))
    assert both.count() == sum(row.outcome == "failed" for row in rows) * 2 + sum(row.queue == "007" for row in rows)
    assert history.where("outcome = 'failed'").count() < history.count() == len(rows)
    # Rows of other queues are left where they are: neither unfolded nor looked up.
    statement = RangeInterval("finished", 0, 2**53 - 1).statement(["id"], [Condition("queue", "=", "nothing")])
    with app.database.connection() as connection:
        lines = [row[0] for row in connection.execute(f"explain (analyze, costs off) {statement}".encode())]
    assert any("Index Cond: (name = 'nothing'::text)" in line for line in lines)
    assert not any("on job_" in line and "never executed" not in line and "rows=0" not in line for line in lines), lines


def test_what_cannot_be_read_is_refused_by_name(spark: SparkSession, app: App) -> None:
    for options, said in (
        ({"table": "nonsense"}, "table: 'nonsense' is none of finished, jobs, failures"),
        ({"table": "jobs", "columns": "id,outcome"}, "columns: table 'jobs' has no column 'outcome'"),
        ({"table": "jobs", "columns": "id,id"}, "columns: a column is named twice"),
        ({"table": "jobs", "partitions": "many"}, "partitions: a whole number from 1 to 10000"),
        ({"table": "jobs", "url": "nowhere"}, "url: a PostgreSQL URL is needed"),
        ({"table": "jobs", "since": "2026-11-05T12:00:00"}, "since: a time needs its zone"),
        ({"table": "jobs", "until": "tomorrow"}, "until: 'tomorrow' is no time"),
        ({"table": "jobs", "outcome": "failed"}, "outcome: table 'jobs' cannot be chosen from by outcome"),
        ({"table": "finished", "outcome": "good"}, "outcome: 'good' is none of"),
    ):
        with pytest.raises(Exception, match="InvalidInput") as caught:
            spark.read.format("penstock").options(**{"url": app.url, **options}).load().collect()
        assert said in str(caught.value)


def test_rows_are_read_once_however_many_parts(spark: SparkSession, app: App, past: Past) -> None:
    for count in ("1", "2", "50"):
        rows: list[Row] = read(spark, app, "finished", columns="id", partitions=count).collect()
        assert sorted(row.id for row in rows) == sorted(past.ended)
