"""Batch handlers: several jobs in one call, each with an end of its own."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from tests.system import in_processes
from tests.system.conftest import MakeApp, Working
from tests.system.facts import eventually
from tests.system.orders import Order

import penstock
from penstock import App, InvalidInput


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


def test_on_an_ordered_queue_a_batch_is_of_one_key_in_order_and_the_next_only_after_it(
    app: App, working: Working
) -> None:
    lock, let_go = threading.Lock(), threading.Event()
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    seen: dict[str, list[int]] = {}
    sizes: list[int] = []

    @app.queue("q", order="key").task(key="customer", batch=10)
    def book(orders: list[Order]) -> None:
        (customer,) = {order.customer for order in orders}
        with lock:
            running[customer] += 1
            most[customer] = max(most[customer], running[customer])
            seen.setdefault(customer, []).extend(order.n for order in orders)
            sizes.append(len(orders))
        let_go.wait(60)
        with lock:
            running[customer] -= 1

    book.enqueue_many([Order(f"c{n % 8}", n) for n in range(800)])
    # With slots for a second batch of each key.
    with working(app, concurrency=16):
        eventually(lambda: len(seen) == 8, "a batch of every key runs")
        let_go.set()
        eventually(lambda: app.stats("q").total_completed == 800, "all ended")
    assert set(most.values()) == {1}
    assert seen == {f"c{key}": list(range(key, 800, 8)) for key in range(8)}
    assert sizes == [10] * 80


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
    is_alone = threading.Event()

    @app.queue("q", partitions=1).task(batch=10, timeout=2, backoff=0)
    def work(items: list[dict[str, int]]) -> None:
        calls.append(len(items))
        if len(items) > 1:
            is_alone.wait(60)
        else:
            is_alone.set()

    ids = work.enqueue_many([{"n": n} for n in range(3)])
    app.work(until_idle=True)
    assert calls == [3, 1, 1, 1]
    for job in map(app.job, ids):
        assert (job.state, job.attempt) == ("succeeded", 2)
        assert "timeout" in job.failures[0].error


def test_what_failed_joins_no_batch_of_what_has_not(make_app: MakeApp) -> None:
    app = make_app()
    calls: list[list[int]] = []

    @app.queue("q", partitions=1).task(batch=4, backoff=0)
    def work(items: list[dict[str, int]]) -> None:
        calls.append([item["n"] for item in items])
        if len(calls) == 1:
            # Before what fails here comes back.
            work.enqueue_many([{"n": 10}, {"n": 11}])
            raise ValueError("all of them")

    work.enqueue_many([{"n": n} for n in range(2)])
    app.work(until_idle=True, concurrency=1)
    assert sorted(calls) == [[0], [0, 1], [1], [10, 11]]
