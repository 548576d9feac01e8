"""A total_rate with workers at work, on one database and on two shards: bounded in all, and where the work is."""

from __future__ import annotations

from contextlib import ExitStack
from math import inf
from typing import Any

import pytest
from tests.judge.rates import RatePeriod, over_the_rate, read_leases, watch_leases
from tests.system.conftest import MakeApp, Working
from tests.system.facts import eventually
from tests.system.test_limits import Doors
from tests.system.test_total_limits import Counted

from penstock import App, InvalidInput

kinds = pytest.mark.parametrize(
    "options", [{}, {"order": "key"}, {"fair_by": "tenant"}], ids=["plain", "ordered", "fair"]
)


@kinds
def test_g6_no_more_start_in_all_partitions_together_than_by_a_total_rate(
    make_app: MakeApp, working: Working, urls: list[str], options: dict[str, Any]
) -> None:
    counted = Counted()
    apps = [make_app() for _ in range(2)]
    queues = [app.queue("q", partitions=4, total_rate="40/s", **options) for app in apps]
    tasks = [queue.task(name="t", key="n")(counted) for queue in queues]
    for url in urls:
        watch_leases(url)
    tasks[0].enqueue_many([{"n": n} for n in range(120)])
    with ExitStack() as stack:
        for app in apps:
            stack.enter_context(working(app, concurrency=8))
        eventually(lambda: counted.done == 120, "all have run")
    leases = read_leases(urls, "q")
    assert sum(lease.jobs for lease in leases) == 120
    assert over_the_rate(leases, [RatePeriod(0.0, inf, 40.0)]) == []
    assert apps[0].stats("q").rules.total_rate == "40/s"


@kinds
def test_a_total_rate_is_changed_live(app: App, working: Working, options: dict[str, Any]) -> None:
    doors = Doors()
    doors.open("all")
    # All would take five minutes. A token a day would do, but one that a busy shard does not answer for is forfeited.
    task = app.queue("q", partitions=2, total_rate="6/m", **options).task(name="t", key="name")(doors)
    ids = [task.enqueue(name=f"k{n}") for n in range(30)]

    def is_explained() -> bool:
        reasons = [app.explain(job).reason for job in ids if app.job(job).state == "ready"]
        return any(reason.startswith("total_rate 6/m: this partition may start none for now") for reason in reasons)

    with working(app, concurrency=4):
        eventually(lambda: len(doors.started) >= 1, "the first has started")
        eventually(is_explained, "one that waits is told why")
        assert len(doors.started) < 30
        app.limit("q", total_rate="100/s")
        eventually(lambda: len(doors.started) == 30, "all have started")
        app.limit("q", total_rate="1/d")
        eventually(lambda: app.stats("q").rules.total_rate == "1/d", "it has the rate")
        app.limit("q", total_rate=None)
        task.enqueue_many([{"name": f"l{n}"} for n in range(30)])
        eventually(lambda: len(doors.started) == 60, "what has no rate starts")


def test_tokens_go_to_the_partition_that_can_use_them(app: App, working: Working) -> None:
    doors = Doors()
    task = app.queue("q", partitions=2, total_rate="10/s", order="key").task(name="t", key="name")(doors)
    names = {app.job(task.enqueue(name=f"k{n}")).partition: f"k{n}" for n in range(20)}
    stuck, free = names.values()
    app.purge("q")
    task.enqueue_many([{"name": stuck}] * 20)
    with working(app, concurrency=8):
        eventually(lambda: doors.running == 1, "a key is busy, and many of it wait")
        doors.open(free)
        task.enqueue_many([{"name": free}] * 20)
        eventually(lambda: doors.started.count(free) == 20, "the other partition has its tokens")
        doors.open("all")


@pytest.mark.parametrize("order", [None, "key"])
def test_a_total_rate_counts_jobs_and_caps_the_batch(app: App, urls: list[str], order: Any) -> None:
    sizes: list[int] = []

    @app.queue("q", order=order, partitions=2, total_rate="6/s").task(key="customer", batch=50, batch_wait=0.01)
    def book(orders: list[dict[str, Any]]) -> None:
        sizes.append(len(orders))

    for url in urls:
        watch_leases(url)
    book.enqueue_many([{"customer": f"c{n % 2}", "n": n} for n in range(24)])
    app.work(until_idle=True)
    leases = read_leases(urls, "q")
    assert sum(sizes) == sum(lease.jobs for lease in leases) == 24
    assert 1 < max(sizes) <= 6
    assert over_the_rate(leases, [RatePeriod(0.0, inf, 6.0)]) == []


def test_a_worker_that_ends_when_idle_waits_for_tokens(app: App) -> None:
    counted = Counted()
    task = app.queue("q", partitions=3, total_rate="50/s").task(name="t", key="n")(counted)
    task.enqueue_many([{"n": n} for n in range(70)])
    app.work(until_idle=True)
    assert counted.done == 70


def test_two_workers_of_which_one_leaves_keep_the_pace(make_app: MakeApp, working: Working) -> None:
    counted = Counted()
    apps = [make_app() for _ in range(2)]
    tasks = [app.queue("q", partitions=2, total_rate="50/s").task(name="t", key="n")(counted) for app in apps]
    tasks[0].enqueue_many([{"n": n} for n in range(100)])
    with working(apps[0], concurrency=4):
        with working(apps[1], concurrency=4):
            eventually(lambda: counted.done > 10, "jobs run")
        eventually(lambda: counted.done == 100, "the other goes on granting")


@pytest.mark.parametrize("value", [0, 5, "5", "0/s", True])
def test_a_total_rate_that_cannot_be_is_refused_by_its_name(app: App, value: object) -> None:
    app.queue("q")
    with pytest.raises(InvalidInput, match="total_rate"):
        app.limit("q", total_rate=value)  # type: ignore[arg-type]
