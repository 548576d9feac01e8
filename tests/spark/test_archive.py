"""Archiving: each job that ended is in the lake or in the database, once, whatever happens (G8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.past import live

import penstock.spark as ps
from penstock import App, NotFound
from penstock.spark.table_columns import HISTORY, MORE_HISTORY

DAYS = {"succeeded": 7.0, "failed": 30.0, "cancelled": 7.0, "discarded": 7.0, "expired": 7.0}


def ids(spark: SparkSession, app: App, lake: Path | None, **options: Any) -> list[int]:
    """The ids that one history has, in order; a repeated one shows."""
    return sorted(row.id for row in ps.history(spark, app, lake, ["id"], **options).collect())


def test_every_column_comes_back_from_the_lake_as_it_was(spark: SparkSession, app: App, tmp_path: Path) -> None:
    past = live(app)
    lake = tmp_path / "lake"
    columns = [*HISTORY, *MORE_HISTORY]
    before = {row.id: row for row in ps.history(spark, app, lake, columns).collect()}
    assert sorted(before) == sorted(past.ended)
    archived = ps.archive(spark, app, lake)
    assert (archived.rows, archived.waits_for) == (len(past.ended) - len(past.dead), [])
    assert archived.files == len(list(lake.glob("history/**/*.parquet"))) > 0
    history = ps.history(spark, app, lake, columns, view="history")
    after = {row.id: row for row in history.collect()}
    assert after == before
    assert list(ps.history(spark, app, lake).columns) == list(HISTORY)
    assert spark.sql("select count(*) as n from history where outcome = 'failed'").collect()[0].n == len(past.dead)

    # What was archived is gone from the database, the dead letters are work, the waiting ones wait.
    hot = spark.read.format("penstock").options(url=app.url, table="finished", columns="id").load()
    assert sorted(row.id for row in hot.collect()) == sorted(past.dead)
    with pytest.raises(NotFound, match="archived"):
        app.job(past.ended[0])
    assert app.job(past.dead[0]).state == "failed"
    assert sorted(job.id for job in app.jobs(state="scheduled")) == past.waiting[:1]

    # Again: nothing to do, nothing changed.
    files = sorted(lake.rglob("*"))
    again = ps.archive(spark, app, lake)
    assert (again.slices, again.rows) == ([], 0)
    assert sorted(lake.rglob("*")) == files
    assert ids(spark, app, lake) == sorted(past.ended)
