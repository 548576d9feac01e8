"""Spark with an app that has no URL: what brings in jobs or workers creates its database, what looks does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock.spark as ps
from penstock import App
from penstock.errors import PenstockError


def test_what_looks_creates_no_database_and_a_load_does(
    spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake, page = folder / "lake", folder / "page.html"
    with App() as app:
        app.queue("q").task(name="t")(lambda n: None)
        looks: list[Callable[[], Any]] = [
            lambda: ps.history(spark, app, None),
            lambda: ps.report(spark, app, None, page),
            lambda: ps.advise(spark, app, "q"),
            lambda: ps.archive(spark, app, lake),
            lambda: ps.replay(spark, app, lake, "outcome = 'failed'", "again"),
        ]
        for look in looks:
            with pytest.raises(PenstockError, match=rf"there is none in {folder}/\.penstock"):
                look()
        # Options of Spark take neither a URL from the environment nor an embedded server.
        with pytest.raises(Exception, match="url: a PostgreSQL URL is needed"):
            spark.range(1).write.format("penstock").options(queue="q", task="t").mode("append").save()
        with pytest.raises(Exception, match="url: a PostgreSQL URL is needed"):
            spark.read.format("penstock").option("table", "jobs").load().collect()
        assert list(folder.iterdir()) == []
        assert ps.load(spark.range(3).withColumnRenamed("id", "n"), app, "q", "t").rows == 3
    assert [each.getMessage().count("creating a PostgreSQL") for each in caplog.records] == [1]


def test_processing_creates_the_database_of_its_queue(spark: SparkSession, folder: Path) -> None:
    with App() as app:
        app.queue("q")
        assert sum(ps.process(spark, app, "q", lambda batch: [])) == 0
    assert (folder / ".penstock").is_dir()
