"""G8: an archive holds each finished job once and drops only what it holds, however its driver dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault.spark_archiver import POINTS

from penstock import App

FULL = os.environ.get("PENSTOCK_FAULT") == "full"
ROUNDS = 8 if FULL else 1
SHORT = ("written", "listed")
JOBS = 5_000


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        yield app


def drive(app: App, lake: Path, *points: str) -> tuple[int, str]:
    """A driver in a process group of its own: how it ended, and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fault.spark_archiver", app.url, str(lake), *points],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    said, _ = process.communicate()
    return process.returncode, said


def test_a_driver_killed_at_any_step_of_an_archive_loses_nothing_g8(app: App, tmp_path: Path) -> None:
    queue = app.queue("q")
    task = queue.task(name="t")(lambda n: None)
    ended = 0
    for _ in range(ROUNDS):
        for point in POINTS if FULL else SHORT:
            task.enqueue_many([{"n": n} for n in range(JOBS)])
            app.work(until_idle=True)
            ended += JOBS
            assert drive(app, tmp_path / "lake", point)[0] == -signal.SIGKILL, point
    code, said = drive(app, tmp_path / "lake")
    assert (code, said.strip()) == (0, f"history {ended} {ended}")
    with app.database.connection() as connection:
        assert connection.execute("select count(*) from penstock.finished").fetchall() == [(0,)]
        assert connection.execute("select count(*) from penstock.slice where taken_at is not null").fetchall() == [(0,)]
