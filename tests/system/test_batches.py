"""Batch handlers: several jobs in one call, each with an end of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest
from tests.judge.snapshot import read_snapshot
from tests.system import in_processes
from tests.system.conftest import Execute, MakeApp, Working
from tests.system.facts import eventually

import penstock
from penstock import App, InvalidInput
from penstock.engine import conversation
from penstock.storage.work.exchange import Turn

WORKER = """
import os, signal, sys
from penstock import App

app = App(shards=sys.argv[1:], lease=1.0)
queue = app.queue("q", partitions=len(sys.argv[1:]), order="key")

@queue.task(key="customer", batch=10, max_attempts=2, backoff=0)
def book(orders: list[dict]) -> list:
    numbers = [order["n"] for order in orders]
    os.write(1, (" ".join(map(str, numbers)) + "\\n").encode())
    if 7 in numbers:
        os.kill(os.getpid(), signal.SIGKILL)
    return numbers

app.work(concurrency=4, until_idle=True)
"""


@dataclass
class Order:
    customer: str
    n: int


def test_a_handler_is_given_a_list_of_items_in_order_and_gives_results(make_app: MakeApp) -> None:
    app = make_app()
    calls: list[list[Order]] = []

    @app.queue("orders", partitions=1).task(batch=100)
    def book(orders: list[Order]) -> list[int]:
        calls.append(orders)
        return [order.n * 2 for order in orders]

    first = book.enqueue(Order("a", 0))
    ids = [first, *book.enqueue_many([Order("a", 1), {"customer": "b", "n": 2}]), book.enqueue(customer="c", n=3)]
    app.work(until_idle=True)
    assert calls == [[Order("a", 0), Order("a", 1), Order("b", 2), Order("c", 3)]]
    assert [app.result(job) for job in ids] == [0, 2, 4, 6]
    assert [app.job(job).attempt for job in ids] == [1] * 4


def test_a_batch_takes_no_more_than_it_was_declared_for(app: App) -> None:
    sizes: list[int] = []

    @app.queue("q").task(batch=7)
    def work(items: list[dict[str, int]]) -> None:
        sizes.append(len(items))

    work.enqueue_many([{"n": n} for n in range(100)])
    app.work(until_idle=True)
    assert sum(sizes) == 100
    assert max(sizes) == 7
    assert app.stats("q").total_completed == 100


def test_an_exception_in_the_list_fails_that_job_and_raising_fails_all_which_then_run_alone(make_app: MakeApp) -> None:
    app = make_app()
    calls: list[list[int]] = []

    @app.queue("q", partitions=1).task(batch=10, max_attempts=2, backoff=0)
    def work(items: list[dict[str, int]]) -> list[Any]:
        numbers = [item["n"] for item in items]
        calls.append(numbers)
        if len(numbers) > 1 and 9 in numbers:
            raise ValueError("all of them")
        return [ValueError(n) if n == 2 else penstock.Discard("no") if n == 3 else n for n in numbers]

    ids = work.enqueue_many([{"n": n} for n in range(5)])
    app.work(until_idle=True)
    assert calls == [[0, 1, 2, 3, 4], [2]]
    assert [str(app.job(job).state) for job in ids] == ["succeeded", "succeeded", "failed", "discarded", "succeeded"]
    assert [failure.attempt for failure in app.job(ids[2]).failures] == [1, 2]
    calls.clear()
    ids = work.enqueue_many([{"n": n} for n in range(6, 10)])
    app.work(until_idle=True)
    assert sorted(map(len, calls)) == [1, 1, 1, 1, 4]
    assert [app.job(job).attempt for job in ids] == [2] * 4
    assert {str(app.job(job).state) for job in ids} == {"succeeded"}


@pytest.mark.parametrize("given", [[1], "text", {"a": 1}])
def test_a_handler_that_breaks_its_contract_ends_the_worker_and_costs_no_attempt(make_app: MakeApp, given: Any) -> None:
    app = make_app()
    calls: list[int] = []

    @app.queue("q", partitions=1).task(batch=10)
    def work(items: list[dict[str, int]]) -> Any:
        calls.append(len(items))
        return given

    ids = work.enqueue_many([{"n": n} for n in range(3)])
    with pytest.raises(InvalidInput, match=r"broke its contract: it gave .* for a batch of 3 jobs"):
        app.work(until_idle=True)
    assert calls == [3]
    for job in map(app.job, ids):
        assert (job.state, job.attempt, job.failures) == ("ready", 0, [])


def test_on_an_ordered_queue_a_batch_is_of_one_key_in_order_and_the_next_only_after_it(app: App) -> None:
    lock = threading.Lock()
    running: set[str] = set()
    seen: dict[str, list[int]] = {}
    sizes: list[int] = []

    @app.queue("q", order="key").task(key="customer", batch=10)
    def book(orders: list[Order]) -> None:
        (customer,) = {order.customer for order in orders}
        with lock:
            assert customer not in running
            running.add(customer)
            seen.setdefault(customer, []).extend(order.n for order in orders)
            sizes.append(len(orders))
        with lock:
            running.remove(customer)

    book.enqueue_many([Order(f"c{n % 8}", n) for n in range(800)])
    app.work(until_idle=True, concurrency=8)
    assert seen == {f"c{key}": list(range(key, 800, 8)) for key in range(8)}
    assert len(sizes) == 80
    assert set(sizes) == {10}


def test_a_limit_counts_jobs_and_caps_the_batch(app: App) -> None:
    lock = threading.Lock()
    at_work, most, sizes = 0, 0, set()

    @app.queue("q", partitions=1, limit=3).task(batch=10)
    def work(items: list[dict[str, int]]) -> None:
        nonlocal at_work, most
        with lock:
            at_work += len(items)
            most = max(most, at_work)
            sizes.add(len(items))
        with lock:
            at_work -= len(items)

    work.enqueue_many([{"n": n} for n in range(50)])
    app.work(until_idle=True, concurrency=4)
    assert most <= 3
    assert max(sizes) == 3


def test_an_owned_queue_s_limit_caps_the_batch_and_per_key_counts_batches(app: App) -> None:
    lock = threading.Lock()
    at_work: dict[str, list[int]] = {}
    most = {"jobs": 0, "batches": 0}

    @app.queue("q", partitions=1, order="key", per_key=2, limit=30).task(key="customer", batch=10)
    def book(orders: list[Order]) -> None:
        mine = at_work.setdefault(orders[0].customer, [])
        with lock:
            mine.append(len(orders))
            most["batches"] = max(most["batches"], len(mine))
            most["jobs"] = max(most["jobs"], sum(map(sum, at_work.values())))
        with lock:
            mine.remove(len(orders))

    book.enqueue_many([Order("ab"[n % 2], n) for n in range(400)])
    app.work(until_idle=True, concurrency=8)
    assert most["jobs"] <= 30
    assert most["batches"] <= 2
    assert app.stats("q").total_completed == 400


def test_async_and_process_handlers_are_given_batches_too(make_app: MakeApp) -> None:
    app = make_app()
    queue = app.queue("q", partitions=1)
    calls: list[int] = []

    @queue.task(batch=10)
    async def in_loop(context: penstock.BatchContext, items: list[dict[str, int]]) -> list[Any]:
        calls.append(len(items))
        assert [job.attempt for job in context.jobs] == [1] * len(items)
        return [item["n"] + 1 for item in items]

    in_process = queue.task(batch=10, executor="process", max_attempts=1)(in_processes.square_many)
    ids = in_loop.enqueue_many([{"n": n} for n in range(10)])
    others = in_process.enqueue_many([{"n": n} for n in range(4)])
    app.work(until_idle=True)
    assert calls == [10]
    assert [app.result(job) for job in ids] == list(range(1, 11))
    assert [app.result(job) for job in others[:3]] == [0, 1, 4]
    assert "ValueError: 3" in (app.job(others[3]).error or "")


@pytest.mark.parametrize("order", [None, "key"])
def test_a_process_that_dies_charges_no_job_of_its_batch_and_they_run_alone(
    app: App, order: Literal["key"] | None
) -> None:
    queue = app.queue("q", partitions=1, order=order)
    work = queue.task(batch=10, executor="process", max_attempts=2, backoff=0, key=None if order is None else "key")(
        in_processes.die_of_three
    )
    ids = work.enqueue_many([{"n": n, "key": "k"} for n in range(6)])
    app.work(until_idle=True, concurrency=2)
    ended = [app.job(job) for job in ids]
    assert [job.state for job in ended] == ["failed" if n == 3 else "succeeded" for n in range(6)]
    assert [job.attempt for job in ended] == [2 if n == 3 else 1 for n in range(6)]
    assert [len(job.failures) for job in ended] == [2 if n == 3 else 0 for n in range(6)]


def test_explain_names_the_batch_and_a_cancelled_member_ends_with_it(app: App, working: Working) -> None:
    started, go = threading.Event(), threading.Event()
    cancelled: list[list[bool]] = []

    @app.queue("q", partitions=1).task(batch=10)
    def work(context: penstock.BatchContext, items: list[dict[str, int]]) -> list[Any]:
        started.set()
        eventually(lambda: any(job.is_cancelled for job in context.jobs), "a job is cancelled")
        go.wait(60)
        cancelled.append([job.is_cancelled for job in context.jobs])
        assert not context.is_cancelled
        return [ValueError("stopped") if job.is_cancelled else job.job_id for job in context.jobs]

    ids = work.enqueue_many([{"n": n} for n in range(3)])
    with working(app):
        assert started.wait(60)
        said = app.explain(ids[1])
        assert said.reason.endswith(f"in a batch with {ids[0]}, {ids[2]}")
        assert said.detail["batch"] == [ids[0], ids[2]]
        app.cancel(ids[1])
        go.set()
        assert app.result(ids[0], timeout=60) == ids[0]
        eventually(lambda: app.job(ids[1]).state == "cancelled", "it ended with its batch")
    assert cancelled == [[False, True, False]]


def test_a_timeout_is_the_batch_s_and_its_jobs_then_run_alone(make_app: MakeApp) -> None:
    app = make_app()
    calls: list[int] = []

    @app.queue("q", partitions=1).task(batch=10, timeout=0.2, backoff=0)
    def work(items: list[dict[str, int]]) -> None:
        calls.append(len(items))
        if len(items) > 1:
            threading.Event().wait(3)

    ids = work.enqueue_many([{"n": n} for n in range(3)])
    app.work(until_idle=True)
    assert calls == [3, 1, 1, 1]
    for job in map(app.job, ids):
        assert (job.state, job.attempt) == ("succeeded", 2)
        assert "timeout" in job.failures[0].error


def test_a_batch_waits_for_a_fuller_one_but_not_for_longer_than_told(app: App, working: Working) -> None:
    sizes: list[int] = []

    @app.queue("plain", partitions=1).task(batch=3, batch_wait=10.0)
    def plain(items: list[dict[str, int]]) -> None:
        sizes.append(len(items))

    @app.queue("owned", partitions=1, order="key").task(key="k", batch=3, batch_wait=10.0)
    def owned(items: list[dict[str, Any]]) -> None:
        sizes.append(len(items))

    with working(app):
        for n in range(3):
            plain.enqueue(n=n)
            owned.enqueue(n=n, k="a")
        eventually(lambda: len(sizes) == 2, "both batches ran")
    assert sizes == [3, 3]


def test_what_is_not_full_starts_when_it_has_waited(app: App) -> None:
    sizes: list[int] = []

    @app.queue("plain", partitions=1).task(batch=100, batch_wait=0.3)
    def plain(items: list[dict[str, int]]) -> None:
        sizes.append(len(items))

    @app.queue("owned", partitions=1, order="key").task(key="k", batch=100, batch_wait=0.3)
    def owned(items: list[dict[str, Any]]) -> None:
        sizes.append(len(items))

    plain.enqueue_many([{"n": n} for n in range(4)])
    owned.enqueue_many([{"n": n, "k": "a"} for n in range(5)])
    app.work(until_idle=True)
    assert sorted(sizes) == [4, 5]


def test_jobs_of_other_tasks_and_priorities_are_not_passed_over_for_long(make_app: MakeApp) -> None:
    app = make_app()
    queue = app.queue("q", partitions=1)
    order: list[Any] = []

    @queue.task(batch=10)
    def many(items: list[dict[str, int]]) -> None:
        order.append([item["n"] for item in items])

    @queue.task
    def one(n: int) -> None:
        order.append(n)

    urgent = many.options(priority=0).job(n=100)
    app.enqueue_many([job for n in range(3) for job in (many.job(n=n), one.job(n=n))] + [urgent])
    app.work(until_idle=True, concurrency=1)
    assert order == [[100], [0, 1, 2], 0, 1, 2]


def test_after_a_crash_the_jobs_of_a_batch_run_alone_and_no_attempt_was_charged(
    urls: list[str], tmp_path: Path, execute: Execute
) -> None:
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    with App(shards=urls) as app:

        @app.queue("q", partitions=len(urls), order="key").task(key="customer", batch=10, max_attempts=2)
        def book(orders: list[dict[str, Any]]) -> None: ...

        ids = book.enqueue_many([{"customer": "a", "n": n} for n in range(10)])
        calls: list[str] = []
        died = 0
        while not read_snapshot(*urls).is_drained:
            command = [sys.executable, str(program), *urls]
            ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=dict(os.environ))
            assert ran.returncode in (0, -signal.SIGKILL)
            died += ran.returncode != 0
            calls += ran.stdout.splitlines()
        assert calls[0] == "0 1 2 3 4 5 6 7 8 9"
        # In order, and alone: the one that kills its worker is found, and dies of its own two attempts.
        assert calls[1:] == [*"01234567", *"789"]
        assert died == 3
        assert str(app.job(ids[7]).state) == "failed"
        for n, job in enumerate(ids):
            assert n == 7 or (app.job(job).state, app.job(job).attempt, app.job(job).failures) == ("succeeded", 1, [])
        assert len(app.job(ids[7]).failures) == 2


def test_what_a_batch_is_declared_with_is_checked(app: App) -> None:
    queue = app.queue("q")

    def take(items: list[Order]) -> None: ...
    def take_two(items: list[Order], more: int) -> None: ...
    def take_one(item: Order) -> None: ...
    def take_numbers(items: list[int]) -> None: ...

    for options in (
        {"batch": 0},
        {"batch": 1001},
        {"batch": "many"},
        {"batch": 2, "batch_wait": 11},
        {"batch_wait": 1},
    ):
        with pytest.raises(InvalidInput, match=r"batch"):
            queue.task(**options)(take)
    for handler in (take_two, take_one, take_numbers):
        with pytest.raises(InvalidInput, match=r"list\[Order\]"):
            queue.task(batch=2)(handler)
    with pytest.raises(InvalidInput, match="'custmer'"):
        queue.task(batch=2, key="custmer")(take)


def test_items_are_checked_where_they_are_enqueued(app: App) -> None:
    @app.queue("q").task(batch=2)
    def book(orders: list[Order]) -> None: ...

    with pytest.raises(InvalidInput, match="wants int"):
        book.enqueue(customer="a", n="many")
    with pytest.raises(InvalidInput, match="no argument 'm'"):
        book.enqueue({"customer": "a", "n": 1, "m": 2})
    with pytest.raises(InvalidInput, match=r"in row 1: .*Order"):
        book.enqueue_many([Order("a", 1), "b"])
    with pytest.raises(InvalidInput, match="one item"):
        book.enqueue(Order("a", 1), Order("b", 2))
    with app.testing() as tests:
        ids = book.enqueue_many([Order("a", n) for n in range(3)])
        assert tests.drain() == 3
        assert [str(tests.job(job).state) for job in ids] == ["succeeded"] * 3


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_middleware_is_around_a_batch_once_and_knows_that_the_worker_stops(
    app: App, working: Working, kind: str
) -> None:
    is_running = threading.Event()
    queue = app.queue("q", partitions=1)
    seen: list[Any] = []

    @app.middleware
    @contextmanager
    def look(context: Any, args: Any) -> Iterator[None]:
        seen.append((context.task, context.job_id, context.attempt, list(args), context.is_stopping))
        yield
        seen.append(context.is_stopping)

    @queue.task(batch=10)
    def plain(context: penstock.BatchContext, items: list[dict[str, int]]) -> list[str]:
        is_running.set()
        eventually(lambda: context.is_stopping, "it is told")
        return ["stopped"] * len(items)

    @queue.task(name="async", batch=10)
    async def async_task(context: penstock.BatchContext, items: list[dict[str, int]]) -> list[str]:
        is_running.set()
        while not context.is_stopping:  # noqa: ASYNC110  (a stop is told so)
            await asyncio.sleep(0.01)
        return ["stopped"] * len(items)

    ids = (plain if kind == "plain" else async_task).enqueue_many([{"n": n} for n in range(3)])
    with working(app):
        assert is_running.wait(60)
        app.stop()
        eventually(lambda: app.job(ids[2]).state == "succeeded", "it ended by itself")
    assert [app.result(job) for job in ids] == ["stopped"] * 3
    assert seen == [(kind, ids[0], 1, [{"n": 0}, {"n": 1}, {"n": 2}], False), True]


def test_what_middleware_raises_fails_the_batch(make_app: MakeApp) -> None:
    app = make_app()

    @app.middleware
    @contextmanager
    def refuse(context: Any, args: Any) -> Iterator[None]:
        raise ValueError("no session")
        yield

    @app.queue("q", partitions=1).task(batch=10, max_attempts=1)
    def work(items: list[dict[str, int]]) -> None: ...

    ids = work.enqueue_many([{"n": n} for n in range(3)])
    app.work(until_idle=True)
    for job in map(app.job, ids):
        assert "ValueError: no session" in (job.error or "")
    with app.testing() as tests:
        ids = work.enqueue_many([{"n": n} for n in range(2)])
        tests.drain()
        assert ["no session" in (tests.job(job).error or "") for job in ids] == [True, True]


def test_in_a_process_a_batch_has_middleware_and_is_told_of_a_stop(
    app: App, working: Working, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.middleware(in_processes.note)
    work = app.queue("q", partitions=1).task(batch=10, executor="process")(in_processes.stop_many_when_told)
    path = tmp_path / "running"
    ids = work.enqueue_many([{"path": str(path)} for _ in range(2)])
    with working(app):
        eventually(path.exists, "the handler runs")
        app.stop()
        eventually(lambda: app.job(ids[1]).state == "succeeded", "it ended by itself")
    for job in ids:
        name, task, args = app.result(job)
        assert (name, task, args) == ("note", "stop_many_when_told", [{"path": str(path)}] * 2)


@pytest.mark.parametrize("order", [None, "key"])
def test_a_worker_s_cap_counts_a_batch_as_one(app: App, order: Any) -> None:
    lock = threading.Lock()
    at_work, most, sizes = 0, 0, set()

    @app.queue("q", order=order, partitions=2).task(key="customer", batch=10)
    def work(orders: list[Order]) -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
            sizes.add(len(orders))
        threading.Event().wait(0.01)
        with lock:
            at_work -= 1

    work.enqueue_many([Order(f"c{n % 4}", n) for n in range(400)])
    app.work(until_idle=True, concurrency=8, queues={"q": 2})
    assert most == 2
    assert max(sizes) == 10
    assert app.stats("q").total_completed == 400


@pytest.mark.parametrize("order", [None, "key"])
def test_a_total_limit_counts_jobs_and_caps_the_batch(app: App, order: Any) -> None:
    lock = threading.Lock()
    at_work, most = 0, 0

    @app.queue("q", order=order, partitions=2, total_limit=7).task(key="customer", batch=5, batch_wait=0.01)
    def work(orders: list[Order]) -> None:
        nonlocal at_work, most
        with lock:
            at_work += len(orders)
            most = max(most, at_work)
        threading.Event().wait(0.002)
        with lock:
            at_work -= len(orders)

    ids = work.enqueue_many([Order(f"c{n % 20}", n) for n in range(200)])
    app.work(until_idle=True, concurrency=8)
    assert 1 < most <= 7
    assert app.stats("q").total_completed == 200
    assert {app.job(job).attempt for job in ids} == {1}


def test_the_log_tells_of_a_batch_in_one_line(app: App, caplog: pytest.LogCaptureFixture) -> None:
    own = logging.getLogger("shop")

    @app.queue("q", partitions=1).task(batch=10, max_attempts=1)
    def work(items: list[dict[str, int]]) -> list[Any]:
        own.info("at work")
        return [ValueError(item["n"]) for item in items]

    ids = work.enqueue_many([{"n": n} for n in range(3)])
    caplog.handler.addFilter(penstock.JobFilter())
    with caplog.at_level(logging.DEBUG):
        app.work(until_idle=True)
    (began,) = [each for each in caplog.records if "starts" in each.getMessage()]
    assert began.getMessage() == f"batch of 3 (q/work), the first is job {ids[0]}, starts, attempt 1"
    assert (began.job_id, began.jobs) == (ids[0], 3)  # type: ignore[attr-defined]
    (mine,) = [each for each in caplog.records if each.name == "shop"]
    assert (mine.job_id, mine.task, mine.attempt) == (ids[0], "work", 1)  # type: ignore[attr-defined]
    (dead,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert dead.getMessage().startswith(
        f"dead letters: 3, the first is job {ids[0]} (q/work), attempt 1 of 1: ValueErr"
    )


@pytest.mark.parametrize("order", [None, "key"])
def test_explain_knows_a_job_that_waits_for_a_fuller_batch(app: App, working: Working, order: Any) -> None:
    @app.queue("q", partitions=1, order=order).task(key="customer", batch=3, batch_wait=10)
    def work(orders: list[Order]) -> None: ...

    with working(app):
        first = work.enqueue(Order("a", 1))
        eventually(lambda: app.explain(first).reason.startswith("waiting to be in a batch"), "it waits for others")
        said = app.explain(first)
        known = "up to 3 jobs" if order else "3 jobs, of which 1 wait"
        assert said.reason.startswith(f"waiting to be in a batch of {known}: task 'work' starts them within ")
        assert said.detail["batch"] == 3
        work.enqueue_many([Order("a", 2), Order("a", 3)])
        eventually(lambda: app.job(first).state == "succeeded", "the batch was full")


@pytest.mark.parametrize("order", [None, "key"])
def test_a_batch_whose_claim_was_not_heard_of_is_still_one_and_in_order(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, order: Any
) -> None:
    app = make_app()
    calls: list[list[int]] = []
    exchange = conversation.exchange  # type: ignore[attr-defined]
    lost: list[int] = []

    def lose_answer(connection: Any, *args: Any, **named: Any) -> Turn:
        turn = exchange(connection, *args, **named)
        if (turn.leases or turn.chosen) and not lost:
            lost.append(len(turn.leases or turn.chosen))
            connection.close()
            raise psycopg.OperationalError("the answer was lost")
        return turn

    monkeypatch.setattr(conversation, "exchange", lose_answer)

    @app.queue("q", partitions=1, order=order).task(key="customer", batch=10)
    def work(orders: list[Order]) -> None:
        calls.append([order.n for order in orders])

    for n in range(5):
        work.enqueue(Order("a", n))
    app.work(until_idle=True)
    assert lost == [5]
    assert calls == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("order", [None, "key"])
def test_under_a_cap_of_two_a_second_batch_starts_while_the_first_runs(app: App, working: Working, order: Any) -> None:
    running: list[str] = []
    go = threading.Event()

    @app.queue("q", order=order, partitions=1).task(key="customer", batch=10)
    def work(orders: list[Order]) -> None:
        running.append(orders[0].customer)
        go.wait(60)

    with working(app, queues={"q": 2}):
        for customer in "ab":
            work.enqueue_many([Order(customer, n) for n in range(10)])
            eventually(lambda: customer in running, f"the batch of {customer} runs")  # noqa: B023
        go.set()
        eventually(lambda: app.stats("q").total_completed == 20, "both ended")
    assert running == ["a", "b"]


def test_what_failed_joins_no_batch_of_what_has_not(make_app: MakeApp, working: Working) -> None:
    app = make_app()
    calls: list[list[int]] = []

    @app.queue("q", partitions=1).task(batch=2, batch_wait=10.0, backoff=0)
    def work(items: list[dict[str, int]]) -> None:
        calls.append([item["n"] for item in items])
        if len(calls) == 1:
            # Before what fails here comes back.
            work.enqueue(n=10)
            raise ValueError("all of them")

    with working(app, concurrency=1):
        first, _ = work.enqueue_many([{"n": n} for n in range(2)])
        eventually(lambda: app.job(first).failures, "it has failed")
        work.enqueue(n=11)
        eventually(lambda: app.stats("q").total_completed == 4, "all ended")
    assert sorted(calls) == [[0], [0, 1], [1], [10, 11]]
