"""Limits, rates and shares beside batches: they count jobs and cap the batch; a cap of the worker counts batches."""

from __future__ import annotations

import threading
from collections import Counter
from math import inf
from typing import Any

import pytest
from tests.judge.rates import RatePeriod, over_the_rate, read_leases, watch_leases
from tests.system.conftest import Working
from tests.system.facts import eventually
from tests.system.orders import Order

from penstock import App


class Crowd:
    """A handler whose batches stay in until they are let go: how many jobs and batches are in, and were at most."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.jobs = self.most_jobs = self.batches = self.most_batches = self.most_of_one = 0
        self.sizes: set[int] = set()
        self._of_customer: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, orders: list[Order]) -> None:
        customer = orders[0].customer
        with self._lock:
            self._add(customer, len(orders), 1)
            self.sizes.add(len(orders))
        self.let_go.wait(60)
        with self._lock:
            self._add(customer, -len(orders), -1)

    def _add(self, customer: str, jobs: int, batches: int) -> None:
        self.jobs += jobs
        self.batches += batches
        self._of_customer[customer] += batches
        self.most_jobs = max(self.most_jobs, self.jobs)
        self.most_batches = max(self.most_batches, self.batches)
        self.most_of_one = max(self.most_of_one, self._of_customer[customer])


def declare(app: App, crowd: Crowd, batch: int, **options: Any) -> Any:
    @app.queue("q", **options).task(key="customer", batch=batch)
    def work(orders: list[Order]) -> None:
        crowd(orders)

    return work


def test_a_limit_counts_jobs_and_caps_the_batch(app: App, working: Working) -> None:
    crowd = Crowd()
    declare(app, crowd, 10, partitions=1, limit=3).enqueue_many([Order("a", n) for n in range(50)])
    with working(app, concurrency=4):
        eventually(lambda: crowd.jobs >= 3, "as many as may")
        assert app.stats("q").active_count == 3
        crowd.let_go.set()
        eventually(lambda: app.stats("q").total_completed == 50, "all ended")
    assert crowd.most_jobs == 3
    assert max(crowd.sizes) == 3


def test_an_owned_queue_s_limit_caps_the_batch_and_per_key_counts_batches(app: App, working: Working) -> None:
    crowd = Crowd()
    work = declare(app, crowd, 10, partitions=1, order="key", per_key=2, limit=35)
    work.enqueue_many([Order("ab"[n % 2], n) for n in range(400)])
    with working(app, concurrency=8):
        eventually(lambda: crowd.jobs >= 35, "as many as may")
        # Two of each key, of which the last is smaller.
        assert (crowd.batches, crowd.sizes) == (4, {10, 5})
        crowd.let_go.set()
        eventually(lambda: app.stats("q").total_completed == 400, "all ended")
    assert crowd.most_jobs == 35
    assert crowd.most_of_one == 2


@pytest.mark.parametrize("order", [None, "key"])
def test_a_worker_s_cap_counts_a_batch_as_one(app: App, working: Working, order: Any) -> None:
    crowd = Crowd()
    work = declare(app, crowd, 10, order=order, partitions=2)
    work.enqueue_many([Order(f"c{n % 4}", n) for n in range(400)])
    with working(app, concurrency=8, queues={"q": 2}):
        eventually(lambda: crowd.batches >= 2, "as many as the cap allows")
        assert app.stats("q").active_count == 20
        crowd.let_go.set()
        eventually(lambda: app.stats("q").total_completed == 400, "all ended")
    assert crowd.most_batches == 2
    assert max(crowd.sizes) == 10


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


@pytest.mark.parametrize("order", [None, "key"])
def test_a_total_limit_counts_jobs_and_caps_the_batch(app: App, working: Working, order: Any) -> None:
    crowd = Crowd()
    work = declare(app, crowd, 5, order=order, partitions=2, total_limit=7)
    ids = work.enqueue_many([Order(f"c{n % 20}", n) for n in range(200)])
    with working(app, concurrency=8):
        eventually(lambda: crowd.jobs >= 7, "as many as may")
        assert app.stats("q").active_count == 7
        crowd.let_go.set()
        eventually(lambda: app.stats("q").total_completed == 200, "all ended")
    assert crowd.most_jobs == 7
    assert max(crowd.sizes) <= 5
    assert {app.job(job).attempt for job in ids} == {1}


@pytest.mark.parametrize("order", [None, "key"])
def test_a_total_limit_and_a_total_rate_together_cap_the_batch(
    app: App, working: Working, urls: list[str], order: Any
) -> None:
    crowd = Crowd()
    work = declare(app, crowd, 10, order=order, partitions=2, total_limit=6, total_rate="40/s")
    for url in urls:
        watch_leases(url)
    work.enqueue_many([Order(f"c{n % 4}", n) for n in range(120)])
    with working(app, concurrency=8):
        eventually(lambda: crowd.jobs >= 6, "as many as may run")
        crowd.let_go.set()
        eventually(lambda: app.stats("q").total_completed == 120, "all ended")
    assert crowd.most_jobs == 6
    assert 1 < max(crowd.sizes) <= 6
    leases = read_leases(urls, "q")
    assert sum(lease.jobs for lease in leases) == 120
    assert over_the_rate(leases, [RatePeriod(0.0, inf, 40.0)]) == []
