"""G8: a load is enqueued once or not at all, through tasks that fail, die or run twice, and through dead drivers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType
from tests.fault.spark_driver import ROWS, Orders
from tests.fault.stage import times
from tests.fault.tally import brought, came_to

from penstock import App
from penstock.spark.loading.load_writer import LoadWriter

FAULT = "Spark task, executor or driver lost"


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        app.queue("loaded", partitions=3)
        app.migrate()
        yield app


class Driver:
    """A driver process with everything it starts."""

    def __init__(self, orders: Orders) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.spark_driver", msgspec.json.encode(orders).decode()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def finished(self) -> list[str]:
        said, _ = self._process.communicate()
        assert self._process.returncode == 0, said[-3000:]
        return [line for line in said.splitlines() if line.startswith("loaded ")]

    def kill(self) -> None:
        """Kill the driver, its JVM, and their children: all of the session this test began."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def is_alive(self) -> bool:
        return self._process.poll() is None


def count(app: App, statement: str) -> int:
    with app.database.connection() as connection:
        row = connection.execute(statement).fetchone()
    assert row is not None
    return int(row[0])


def staged(app: App) -> int:
    return count(app, "select coalesce(sum(size), 0) from penstock.load_range where load_id is null")


def wait_for(fact: Callable[[], object], driver: Driver) -> None:
    while not fact():
        assert driver.is_alive()
        time.sleep(0.02)


def assert_loaded_once(app: App, loads: int = 1) -> None:
    stats = app.stats("loaded")
    assert (stats.queue_length, stats.total_enqueued) == (ROWS * loads, ROWS * loads)
    with app.database.connection() as connection:
        rows = connection.execute(
            "select count(*), min(n), max(n) from (select count(*) as n from penstock.ready as r"
            " join penstock.job as j on j.id >= r.range * 1024 + r.low and j.id < r.range * 1024 + r.high"
            " group by j.args ->> 'id') as ids"
        ).fetchone()
    assert rows == (ROWS, loads, loads)


@pytest.mark.long_run
def test_a_task_that_fails_after_it_staged_is_run_again_and_counts_once_g8(app: App, tmp_path: Path) -> None:
    names = [f"l-{n}" for n in range(times(1, 5))]
    orders = Orders(app.url, names, str(tmp_path), troubles={1: "raise"})
    assert Driver(orders).finished() == [f"loaded {name} {ROWS} True" for name in names]
    brought(FAULT, len(names))
    assert_loaded_once(app, len(names))
    assert staged(app) > 0  # what the first attempts left, which nobody can claim


def test_two_attempts_at_once_of_one_task_count_once_g8(app: App) -> None:
    # As where Spark copies a slow task, which it does only to another host.
    schema = StructType([StructField("id", LongType())])
    writer = LoadWriter(schema, False, {"url": app.url, "queue": "loaded", "task": "t", "load": "l"})
    rows = [pa.record_batch({"id": list(range(start, start + 10_000))}) for start in range(0, ROWS, 10_000)]
    both = [writer.write(iter(rows)), writer.write(iter(rows))]
    assert staged(app) == 2 * ROWS
    writer.commit([both[1]])
    assert_loaded_once(app)
    # The other attempt's driver comes later, or this one's commit is given again.
    LoadWriter(schema, False, {"url": app.url, "queue": "loaded", "task": "t", "load": "l"}).commit([both[0]])
    writer.commit([both[1]])
    assert_loaded_once(app)
    writer.abort([both[0], both[1]])
    assert_loaded_once(app)
    assert staged(app) == 0
    brought(FAULT)
    came_to({"a load committed twice": 2})


@pytest.mark.long_run
def test_a_killed_executor_s_tasks_are_run_again_and_count_once_g8(app: App, tmp_path: Path) -> None:
    names = [f"l-{n}" for n in range(times(1, 3))]
    orders = Orders(app.url, names, str(tmp_path), "local-cluster[2,1,512]", {0: "kill the executor"})
    assert Driver(orders).finished() == [f"loaded {name} {ROWS} True" for name in names]
    brought(FAULT, len(names))
    assert_loaded_once(app, len(names))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"met-{name}-0" for name in names]


@pytest.mark.long_run
def test_a_driver_killed_between_stage_and_commit_is_run_again_under_its_name_g8(app: App, tmp_path: Path) -> None:
    orders = Orders(app.url, ["l"], str(tmp_path), troubles={1: "hang"})
    driver = Driver(orders)
    wait_for(lambda: staged(app) >= ROWS // 2, driver)
    driver.kill()
    brought(FAULT)
    assert (app.stats("loaded").total_enqueued, app.loads()) == (0, [])
    assert Driver(orders).finished() == [f"loaded l {ROWS} True"]
    assert_loaded_once(app)


@pytest.mark.long_run
def test_a_driver_killed_at_any_time_has_loaded_all_or_nothing_g8(app: App, tmp_path: Path, seed: int) -> None:
    orders = Orders(app.url, ["l"], str(tmp_path))
    chosen = random.Random(seed)

    def published() -> bool:
        return count(app, "select count(*) from penstock.load_batch") == 1

    for _ in range(times(1, 3)):
        driver = Driver(orders)
        before = staged(app)
        wait_for(lambda: staged(app) > before or published(), driver)  # noqa: B023
        time.sleep(chosen.uniform(0, 1.0))
        driver.kill()
        brought(FAULT)
        assert app.stats("loaded").total_enqueued == (ROWS if published() else 0)
    was_published = published()
    assert Driver(orders).finished() == [f"loaded l {ROWS} {not was_published}"]
    came_to({"a load committed twice": int(was_published)})
    assert_loaded_once(app)
