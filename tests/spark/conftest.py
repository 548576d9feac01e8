"""One Spark session a run, and an app on a database of its own for each test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.system.cli_runs import Run

import penstock.spark as ps
from penstock import App
from penstock.cli import analyse, load, main


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


@pytest.fixture
def penstock(
    spark: SparkSession,
    tmp_path: Path,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[..., Run]:
    """The command line in this process, on the session that is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_URL", database_url)
    for commands in (analyse, load):
        monkeypatch.setattr(commands, "spark_session", lambda _: nullcontext(spark))

    def run(*words: str) -> Run:
        monkeypatch.setattr(sys, "argv", ["penstock", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Run(ended.value.code, *capfd.readouterr())

    return run
