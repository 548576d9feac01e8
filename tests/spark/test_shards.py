"""The pipeline over two shards: a load is visible everywhere or nowhere, and everything else covers both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import penstock.spark as ps
from penstock import App


@pytest.fixture
def app(shard_urls: list[str]) -> Iterator[App]:
    """An app on two fresh shards."""
    with App(shards=shard_urls) as app:
        yield app


def test_a_load_from_spark_lies_on_both_shards(spark: SparkSession, app: App) -> None:
    app.queue("orders", partitions=4)
    app.migrate()
    frame = spark.range(0, 4_000, 1, 4).select(f.concat(f.lit("c-"), f.col("id") % 37).alias("customer"), "id")
    done = ps.load(frame, app, "orders", "ship", key="customer", load="l")
    assert (done.rows, done.duplicates, done.is_new) == (4_000, 0, True)
    again = ps.load(frame, app, "orders", "ship", key="customer", load="l")
    assert (again.rows, again.is_new, again.published_at) == (4_000, False, done.published_at)
