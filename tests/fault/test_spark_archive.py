"""G8: an archive holds each finished job once and drops only what it holds, however its driver or connection dies."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.fault.spark_archiver import POINTS
from tests.fault.stage import times
from tests.fault.tally import brought

from penstock import App, Task
from penstock.storage.upkeep.prune import prune

JOBS = 5_000
# The jobs that are discarded may go at any time; the others are looked for.
RETENTION = {"succeeded": 7.0, "failed": 30.0, "cancelled": 7.0, "discarded": 0.0, "expired": 7.0}
END_GUARD = """
select pg_terminate_backend(pid, 10000) from pg_locks
 where locktype = 'advisory' and granted
   and (classid::bigint << 32 | objid::bigint) = hashtext('penstock.archive')::bigint
   and database = (select oid from pg_database where datname = current_database())
"""
# Lets the numbers pass the table of jobs in use, which prune may then let go. The next one may be twice as wide, so
# that the numbers would end after some thirty times.
MOST_PASSES = 12
PASS_TABLES = """
select setval('penstock.range_number', high + 1) from penstock.job_table
 where (select last_value from penstock.range_number) between low and high - 1
"""


class Unwanted(Exception):
    """Discards its job."""


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        yield app


@pytest.fixture
def task(app: App) -> Task[[int], None]:
    @app.queue("q").task(name="t", discard_on=Unwanted)
    def t(n: int) -> None:
        if n < 0:
            raise Unwanted

    return t


def command(app: App, lake: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "tests.fault.spark_archiver", app.url, str(lake), *more]


def drive(app: App, lake: Path, *more: str) -> tuple[int, str]:
    """A driver in a process group of its own: how it ended, and what it said."""
    process = subprocess.run(
        command(app, lake, *more), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    return process.returncode, process.stdout


def finish(app: App, task: Task[[int], None], count: int, unwanted: int = 0) -> int:
    """So many that succeed, and some that are discarded."""
    task.enqueue_many([{"n": n} for n in range(-unwanted, count)])
    app.work(until_idle=True)
    return count


def assert_all_is_in_the_lake(app: App, lake: Path, ended: int) -> None:
    code, said = drive(app, lake)
    assert (code, said.strip()) == (0, f"history {ended} {ended} {ended}")
    with app.database.connection() as connection:
        assert connection.execute("select count(*) from penstock.finished").fetchall() == [(0,)]
        assert connection.execute("select count(*) from penstock.slice where taken_at is not null").fetchall() == [(0,)]
        verified = connection.execute("select folder from penstock.writing where state = 'verified'").fetchall()
    assert {f"history/{path.name}" for path in (lake / "history").iterdir()} == {row[0] for row in verified}


@pytest.mark.long_run
def test_a_driver_killed_at_any_step_of_an_archive_loses_nothing_g8(
    app: App, task: Task[[int], None], tmp_path: Path, seed: int
) -> None:
    ended = 0
    for point in random.Random(seed).sample(sorted(POINTS), times(2, 4)):
        ended += finish(app, task, JOBS)
        assert drive(app, tmp_path / "lake", "--die-at", point)[0] == -signal.SIGKILL, point
        brought("archive killed")
    assert_all_is_in_the_lake(app, tmp_path / "lake", ended)


@contextmanager
def archiving_without_end(app: App, lake: Path, drivers: int) -> Iterator[Callable[[], str]]:
    """Drivers that archive again and again for as long as the block lasts; gives what they have said."""
    stop = lake.parent / "stop"
    logs = [lake.parent / f"driver-{number}.log" for number in range(drivers)]
    with ExitStack() as stack:
        processes = []
        for log in logs:
            output = stack.enter_context(log.open("w"))
            processes.append(
                subprocess.Popen(command(app, lake, "--until", str(stop)), stdout=output, stderr=subprocess.DEVNULL)
            )
        try:
            yield lambda: "".join(log.read_text() for log in logs)
        finally:
            stop.touch()
            codes = [process.wait() for process in processes]
    assert codes == [0] * drivers


@pytest.mark.long_run
def test_archives_and_prunes_at_full_speed_that_lose_their_connections_lose_no_job_g8(
    app: App, task: Task[[int], None], tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    lake = tmp_path / "lake"
    ended, cut, passed = 0, 0, 0
    with archiving_without_end(app, lake, drivers=2) as said, app.database.connect() as connection:
        # Until archives were cut off in the middle, and others took over from them.
        while cut < 10 or "has taken over" not in said():
            ended += finish(app, task, 200, unwanted=50)
            if passed < MOST_PASSES and chance.random() < 0.2:
                connection.execute(PASS_TABLES)
                passed += 1
            prune(app.database, RETENTION)
            if chance.random() < 0.5:
                killed = len(connection.execute(END_GUARD).fetchall())
                cut += killed
                brought("archive killed", killed)
    code, text = drive(app, lake)
    assert code == 0
    rows, jobs, succeeded = map(int, text.split()[1:])
    assert (rows, succeeded) == (jobs, ended)
    brought("prune and archive at full speed beside the load")
