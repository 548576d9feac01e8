"""Cron entries that are due: each instant makes a job, in time, however many entries there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest
from tests.system.facts import eventually

from penstock import App
from penstock.storage import Database
from penstock.upkeep import Upkeep, upkeep
from penstock.upkeep.cron import fire_crons

Declare = Callable[[int, str], None]
INSTANTS = "select attributes->>'cron', (attributes->>'instant')::timestamptz from penstock.job order by 2"


@pytest.fixture
def app(database: Database) -> Iterator[App]:
    with App(database.url) as app:
        yield app


@pytest.fixture(params=["plain", "ordered"])
def declare(app: App, request: pytest.FixtureRequest) -> Declare:
    """Declares entries of two tasks, on a plain queue and on one with an owner."""
    queue = app.queue("q", partitions=2, order="key" if request.param == "ordered" else None)
    tasks = [queue.task(name=name)(lambda n=0: None) for name in ("tick", "tock")]

    def declare(count: int, expression: str) -> None:
        for number in range(count):
            app.cron(f"entry-{number}", expression, tasks[number % 2], args={"n": number})
        app.crons()

    return declare


def test_g7_workers_that_are_late_make_up_for_every_instant(declare: Declare, database: Database) -> None:
    declare(1, "* * * * * *")
    with database.connect() as connection:
        connection.execute("update penstock.cron set next_at = date_trunc('second', now()) - interval '5 seconds'")
        assert fire_crons(connection) >= 6
        instants = [at for _, at in connection.execute(INSTANTS).fetchall()]
    assert instants == [instants[0] + timedelta(seconds=n) for n in range(len(instants))]


def test_g7_of_what_passed_while_no_worker_ran_the_latest_instant_makes_a_job(
    declare: Declare, database: Database
) -> None:
    declare(1, "0 3 * * *")
    with database.connect() as connection:
        connection.execute("update penstock.cron set next_at = now() - interval '3 days'")
        assert fire_crons(connection) == 1
        ((_, instant),) = connection.execute(INSTANTS).fetchall()
        row = connection.execute("select last_at, next_at from penstock.cron").fetchone()
    assert row == (instant, instant + timedelta(days=1))


def test_g7_all_entries_that_are_due_fire_in_one_round_once_each(
    app: App, declare: Declare, database: Database
) -> None:
    declare(3, "0 3 * * *")
    with database.connect() as connection:
        # Some thousand more, of which the first cannot be read: it keeps no other from firing.
        connection.execute(
            "insert into penstock.cron (name, expression, timezone, queue_id, task, args, next_at)"
            " select 'copy-' || n, case n when 0 then 'nonsense' else c.expression end, c.timezone, c.queue_id, c.task,"
            " c.args, now() from penstock.cron as c, generate_series(0, 2999) as n where c.name = 'entry-0'"
        )
        connection.execute("update penstock.cron set next_at = now() - interval '2 seconds'")
        assert fire_crons(connection) == 3_002
        assert fire_crons(connection) == 0
        fired = Counter(name for name, _ in connection.execute(INSTANTS).fetchall())
        assert set(fired.values()) == {1}
        assert "copy-0" not in fired
    depths = [partition.queue_length for partition in app.stats("q").partitions]
    assert max(depths) - min(depths) <= 1


def test_g7_an_entry_fires_when_it_is_due_and_not_with_the_next_sweep(
    declare: Declare, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(1, "* * * * * *")
    monkeypatch.setattr(upkeep, "SWEEP_SECONDS", 3_600.0)
    rounds = Upkeep(database, None)
    rounds.start()
    try:

        def fired() -> list[datetime]:
            with database.connect() as connection:
                return [at for _, at in connection.execute(INSTANTS).fetchall()]

        eventually(lambda: len(fired()) > 3, "it fires again and again")
    finally:
        rounds.stop()
