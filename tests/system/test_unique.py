"""`unique="waiting"`: of jobs that are the same one waits, however many ask for it and whoever dies."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.system.conftest import Execute, MakeApp, Working
from tests.system.facts import eventually
from tests.system.forks import Forked

import penstock
from penstock import App, InvalidInput
from penstock.client.task import Task


def declare(app: App, **options: Any) -> tuple[Task[..., Any], list[int]]:
    queue = app.queue("q", **options)
    got: list[int] = []

    @queue.task
    def refresh(n: int = 0, text: str = "") -> int:
        got.append(n)
        return n

    return refresh, got


def test_while_one_waits_its_id_is_given_and_then_a_new_one(app: App) -> None:
    refresh, got = declare(app)
    once = refresh.options(unique="waiting")
    first = once.enqueue(n=1)
    assert once.enqueue(n=1) == first
    assert asyncio.run(once.aenqueue(n=1)) == first
    other = once.enqueue(n=2)
    assert other != first
    assert refresh.enqueue(n=1) not in (first, other)  # Who does not ask for it gets a job of its own.
    assert once.enqueue_many([{"n": 1}, {"n": 3}, {"n": 3}, {"n": 2}])[::3] == [first, other]
    assert app.stats("q").total_enqueued == 4
    app.work(until_idle=True)
    assert sorted(got) == [1, 1, 2, 3]
    again = once.enqueue(n=1)
    assert again != first
    assert asyncio.run(once.aenqueue_many([{"n": 1}])) == [again]
    assert app.job(again).idempotency_key is None


def test_what_waits_for_a_time_or_for_others_waits(app: App) -> None:
    refresh, _ = declare(app)
    parent = refresh.enqueue(n=9)
    later = refresh.options(unique="waiting", delay=3600).enqueue(n=1)
    child = refresh.options(unique="waiting", after=[parent]).enqueue(n=2)
    assert refresh.options(unique="waiting").enqueue(n=1) == later
    assert refresh.options(unique="waiting", priority=1).enqueue(n=2) == child
    app.cancel(later)
    app.cancel(child)
    assert refresh.options(unique="waiting").enqueue(n=1) != later
    assert refresh.options(unique="waiting").enqueue(n=2) != child


def test_a_key_of_its_own_stands_for_task_and_arguments(app: App) -> None:
    queue = app.queue("q")

    @queue.task
    def a(n: int) -> None: ...

    @queue.task
    def b(n: int) -> None: ...

    first = a.options(unique="waiting", unique_key="index").enqueue(n=1)
    assert b.options(unique="waiting", unique_key="index").enqueue(n=2) == first
    assert a.options(unique="waiting").enqueue(n=1) != first
    jobs = [a.options(unique="waiting", unique_key=key).job(n=3) for key in ("index", "x", "x")]
    ids = app.enqueue_many(jobs)
    assert (ids[0], ids[1] == ids[2]) == (first, True)


def test_on_an_ordered_queue_each_key_has_its_own(app: App) -> None:
    queue = app.queue("q", order="key")

    @queue.task(key="customer")
    def update(customer: str) -> None: ...

    once = update.options(unique="waiting", unique_key="u")
    ids = [once.enqueue(customer=customer) for customer in ("a", "b", "a", "b")]
    assert (ids[:2] == ids[2:], len(set(ids))) == (True, 2)
    app.work(until_idle=True)
    assert once.enqueue(customer="a") not in ids


def test_a_job_that_runs_does_not_wait(app: App) -> None:
    queue = app.queue("q")
    ids: list[int] = []

    @queue.task
    def chain(n: int) -> None:
        if len(ids) < 3:
            ids.append(chain.options(unique="waiting").enqueue(n=n))

    ids.append(chain.options(unique="waiting").enqueue(n=1))
    app.work(until_idle=True, concurrency=1)
    assert len(set(ids)) == 3
    assert [app.job(id_).state for id_ in ids] == ["succeeded"] * 3


def test_one_that_was_snoozed_does_not_wait(app: App) -> None:
    queue = app.queue("q")

    @queue.task
    def nap(n: int) -> None:
        raise penstock.Snooze(for_=3600)

    first = nap.options(unique="waiting").enqueue(n=1)
    app.work(until_idle=True)
    assert app.job(first).state == "scheduled"
    assert nap.options(unique="waiting").enqueue(n=1) != first


def test_sql_and_python_mean_the_same_job(make_app: MakeApp, urls: list[str]) -> None:
    app = make_app(urls[0])
    refresh, _ = declare(app)
    first = refresh.options(unique="waiting").enqueue(text="é", n=1)
    with psycopg.connect(urls[0]) as connection:
        statement = """select penstock.enqueue('q', 'refresh', '{"n": 1, "text": "\\u00e9"}', "unique" => 'waiting')"""
        assert connection.execute(statement).fetchall() == [(first,)]
        with pytest.raises(psycopg.Error, match="unique: must be waiting"):
            connection.execute("select penstock.enqueue('q', 'refresh', \"unique\" => 'running')")


def test_what_does_not_go_together_is_refused(app: App, urls: list[str]) -> None:
    refresh, _ = declare(app)
    with pytest.raises(InvalidInput, match="'running' is unknown"):
        refresh.options(unique="running")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="write unique='waiting' with it"):
        refresh.options(unique_key="x")
    with pytest.raises(InvalidInput, match="give one of them"):
        refresh.options(unique="waiting", idempotency_key="x")
    with pytest.raises(InvalidInput, match="is Penstock's own"):
        refresh.options(idempotency_key="penstock.unique:" + "0" * 64)
    app.migrate()
    with psycopg.connect(urls[0]) as connection, pytest.raises(psycopg.Error, match="is Penstock's own"):
        connection.execute("select penstock.enqueue('q', 'refresh', '{}', idempotency_key => 'penstock.unique:0')")
    with pytest.raises(InvalidInput, match="keep only the first"):
        refresh.options(unique="waiting", unique_key="x").enqueue_many([{"n": 1}])
    with psycopg.connect(urls[0]) as connection:
        with pytest.raises(InvalidInput, match="not with connection="):
            refresh.options(unique="waiting", connection=connection)
        with pytest.raises(InvalidInput, match="not with connection="):
            app.enqueue_many([refresh.options(unique="waiting").job(n=1)], connection=connection)


def test_in_a_test_it_is_the_same(app: App) -> None:
    refresh, got = declare(app)
    with app.testing() as testing:
        once = refresh.options(unique="waiting")
        first = once.enqueue(n=1)
        assert once.enqueue(n=1) == first
        testing.drain()
        assert once.enqueue(n=1) != first
    assert got == [1]


WAITING = """
    select args ->> 'n', count(*) from penstock.job where penstock.waits_unstarted(id) group by 1 having count(*) > 1
"""


def test_g7_each_call_is_given_a_job_that_starts_after_it_and_one_waits(
    app: App, execute: Execute, working: Working
) -> None:
    queue = app.queue("q")
    started: dict[int, float] = {}

    @queue.task
    def refresh(context: penstock.Context, n: int) -> None:
        started.setdefault(context.job_id, time.monotonic())

    once = refresh.options(unique="waiting")
    given: list[tuple[float, int]] = []

    def produce(n: int) -> None:
        for _ in range(60):
            began = time.monotonic()
            given.append((began, once.enqueue(n=n % 2)))

    with working(app, concurrency=2):
        threads = [threading.Thread(target=produce, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert execute(WAITING) == []
        for thread in threads:
            thread.join()
        eventually(lambda: {id_ for _, id_ in given} <= started.keys(), "every job that was given has started")
    assert len(given) == 360
    assert [(began, id_) for began, id_ in given if started[id_] < began] == []


def test_g7_the_same_where_producers_and_sessions_are_killed(
    make_app: MakeApp, execute: Execute, working: Working, tmp_path: Path
) -> None:
    app = make_app()
    queue = app.queue("q")
    started: dict[int, float] = {}

    @queue.task
    def refresh(context: penstock.Context, n: int) -> None:
        started.setdefault(context.job_id, time.monotonic())

    once = refresh.options(unique="waiting")
    once.enqueue(n=0)

    def producing(number: int) -> Callable[[], None]:
        def produce() -> None:
            # The clock is the machine's: the same in every process.
            with (tmp_path / str(number)).open("a", buffering=1) as told:
                while True:
                    began = time.monotonic()
                    told.write(f"{began!r} {once.enqueue(n=0)}\n")

        return produce

    with working(app, concurrency=1):
        for round_ in range(4):
            children = [Forked(producing(10 * round_ + number)) for number in range(3)]
            files = [tmp_path / str(10 * round_ + number) for number in range(3)]
            eventually(
                lambda: all(file.exists() and file.read_text().count("\n") > 5 for file in files),  # noqa: B023
                "all have enqueued",
            )
            assert execute(WAITING) == []
            execute(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid() and query like '%%take_unique%%'"
            )
            for child in children:
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                os.close(child._reads)
            assert execute(WAITING) == []
        given = [
            (float(began), int(id_))
            for file in tmp_path.iterdir()
            for began, _, id_ in (line.partition(" ") for line in file.read_text().splitlines())
            if id_.isdecimal()
        ]
        eventually(lambda: {id_ for _, id_ in given} <= started.keys(), "every job that was given has started")
    assert [(began, id_) for began, id_ in given if started[id_] < began] == []
