"""One Spark session a run, and an app on a database of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import penstock.spark as ps
from penstock import App


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores; a task is tried up to four times, as on a cluster (plain local[2] never tries again)."""
    session = ps.session("local[2,4]", spark_sql_shuffle_partitions="4")
    ps.register(session)
    yield session
    session.stop()


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    """An app on a fresh database."""
    with App(database_url) as app:
        yield app
