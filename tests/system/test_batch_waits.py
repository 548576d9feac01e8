"""A batch waits in its queue to be fuller, no longer than told, and keeps nothing else from starting."""

from __future__ import annotations

from typing import Any

import pytest
from tests.system.conftest import MakeApp, Working
from tests.system.facts import eventually
from tests.system.orders import Order

from penstock import App


def test_a_batch_waits_for_a_fuller_one(app: App, working: Working) -> None:
    sizes: list[int] = []

    @app.queue("plain", partitions=1).task(batch=3, batch_wait=10.0)
    def plain(items: list[dict[str, int]]) -> None:
        sizes.append(len(items))

    @app.queue("owned", partitions=1, order="key").task(key="k", batch=3, batch_wait=10.0)
    def owned(items: list[dict[str, Any]]) -> None:
        sizes.append(len(items))

    with working(app):
        # The others come with the next call: the first does not wait for longer than this.
        plain.enqueue(n=0)
        plain.enqueue_many([{"n": 1}, {"n": 2}])
        owned.enqueue(n=0, k="a")
        owned.enqueue_many([{"n": 1, "k": "a"}, {"n": 2, "k": "a"}])
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
