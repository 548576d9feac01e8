"""Calls without a key are spread over partitions and shards, also those that wait for a time or for other jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from penstock import App, Task

LATER = datetime.now(UTC) + timedelta(days=30)


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        yield app


@pytest.fixture
def task(app: App) -> Task[..., None]:
    queue = app.queue("q", partitions=4)

    @queue.task
    def t(n: int = 0) -> None: ...

    return t


def held(app: App) -> list[int]:
    """How many jobs each partition holds, in whatever state."""
    return [each.queue_length + each.scheduled + each.blocked for each in app.stats("q").partitions]


@pytest.mark.parametrize("waits", ["delay", "run_at", "after"])
def test_calls_that_wait_are_spread(app: App, task: Task[..., None], waits: str) -> None:
    options: dict[str, Any] = {"delay": 3600} if waits == "delay" else {"run_at": LATER}
    if waits == "after":
        options = {"after": [task.options(run_at=LATER).enqueue()]}
    for _ in range(8):
        task.options(**options).enqueue_many([{"n": n} for n in range(200)])
    assert max(held(app)) <= 401


def test_calls_that_wait_are_spread_over_shards(shard_urls: list[str]) -> None:
    with App(shards=shard_urls) as app:
        queue = app.queue("q", partitions=2)

        @queue.task
        def t(n: int = 0) -> None: ...

        for _ in range(8):
            t.options(delay=3600).enqueue_many([{"n": n} for n in range(100)])
        # Shards are read by threads: what one says may be a little older than what was placed there since.
        assert sum(held(app)) == 800
        assert min(held(app)) >= 200


def test_what_waits_is_spread_from_sql_too(app: App, task: Task[..., None], database_url: str) -> None:
    app.queues()
    with psycopg.connect(database_url, autocommit=True) as connection:
        for _ in range(8):
            connection.execute("select penstock.enqueue('q', 't', run_at => now() + interval '1 day')")
        assert held(app) == [2, 2, 2, 2]
        ((parent,),) = connection.execute("select penstock.enqueue('q', 't', run_at => now() + interval '1 day')")
        for _ in range(7):
            connection.execute("select penstock.enqueue('q', 't', after => array[%s::bigint])", [parent])
        assert held(app) == [4, 4, 4, 4]


def test_what_is_due_next_month_does_not_keep_todays_work_away(app: App, task: Task[..., None]) -> None:
    for count in (400, 300, 200, 100):
        task.options(run_at=LATER).enqueue_many([{"n": n} for n in range(count)])
    for _ in range(8):
        task.enqueue()
    assert [each.queue_length for each in app.stats("q").partitions] == [2, 2, 2, 2]


def test_what_belongs_to_a_paused_load_counts_nothing(app: App, task: Task[..., None], database_url: str) -> None:
    task.enqueue_many([{"n": n} for n in range(100)])
    app.queues()
    with psycopg.connect(database_url, autocommit=True) as connection:
        # As `pause_load` leaves them.
        ((partition,),) = connection.execute(
            "with load as (insert into penstock.load (name, queue_id, is_stream, is_paused)"
            " select 'l', id, false, true from penstock.queue returning 1),"
            " gone as (delete from penstock.ready returning *),"
            " held as (insert into penstock.scheduled (due_at, partition_id, priority, range, low, high, attempt, task)"
            " select penstock.paused_at(pos), partition_id, priority, range, low, high, attempt, task from gone)"
            " insert into penstock.tally (partition_id, opened, scheduled)"
            " select partition_id, -100, 100 from gone returning partition_id"
        )
        assert app.stats("q").scheduled == 100
    # An app that has placed nothing yet, and so reads what is there.
    with App(database_url) as another, psycopg.connect(database_url) as connection:
        later = another.queue("q", partitions=4).task(name="t")(lambda: None)
        first = later.options(run_at=LATER).enqueue()
        ((found,),) = connection.execute("select partition_id from penstock.job where id = %s", [first])
    assert found == partition, "of equals the first"
