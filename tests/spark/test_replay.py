"""Replaying: jobs of the past, chosen by SQL, are enqueued again, once for each name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock.spark as ps
from penstock import App, InvalidInput, UnknownTask


def test_jobs_of_the_past_run_again_once_as_they_were(spark: SparkSession, app: App, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    orders = app.queue("orders", partitions=2, order="key")
    mail = app.queue("mail")
    is_down = True
    ran: list[tuple[str, int]] = []

    @orders.task(key="customer", max_attempts=1)
    def ship(customer: str, n: int) -> None:
        if is_down:
            raise TimeoutError("no answer")
        ran.append((customer, n))

    @mail.task(max_attempts=1)
    def send(to: str) -> None:
        if is_down and to == "b":
            raise TimeoutError("no answer")
        ran.append((to, 0))

    first = ship.enqueue_many([{"customer": f"c-{n % 3}", "n": n} for n in range(30)])
    ship.options(key=b"\xff", priority=2, tenant="acme").enqueue(customer="raw", n=99)
    send.enqueue_many([{"to": "a"}, {"to": "b"}])
    app.work(until_idle=True)
    app.purge("orders", state="failed")  # no longer work: they are history
    ps.archive(spark, app, lake)

    where = "error like '%no answer%' or (queue = 'orders' and outcome = 'failed')"
    dry = ps.replay(spark, app, lake, where=where, load="again", dry_run=True)
    assert [(each.queue, each.task, each.jobs) for each in dry.chosen] == [("mail", "send", 1), ("orders", "ship", 31)]
    assert (dry.jobs, dry.loads, app.loads()) == (32, [], [])

    is_down = False
    ran.clear()
    done = ps.replay(spark, app, lake, where=where, load="again")
    assert [(each.name, each.rows, each.is_new) for each in done.loads] == [
        ("again/mail", 1, True),
        ("again/orders", 31, True),
    ]
    app.work(until_idle=True)
    assert sorted(ran) == sorted([("b", 0), ("raw", 99), *((f"c-{n % 3}", n) for n in range(30))])
    for customer in ("c-0", "c-1", "c-2"):
        numbers = [n for name, n in ran if name == customer]
        assert numbers == sorted(numbers)
    raw = [job for job in app.jobs(queue="orders", state="succeeded") if job.args["customer"] == "raw"]
    assert [(job.key, job.priority, job.tenant, job.load) for job in raw] == [(b"\xff", 2, "acme", "again/orders")]

    # Under the same name nothing is enqueued again, also where only one queue is chosen by now.
    assert [each.is_new for each in ps.replay(spark, app, lake, where=where, load="again").loads] == [False, False]
    alone = ps.replay(spark, app, lake, where=f"id = {first[0]}", load="again")
    assert [(each.name, each.is_new) for each in alone.loads] == [("again/orders", False)]
    alone = ps.replay(spark, app, lake, where=f"id = {first[0]}", load="one")
    assert [(each.name, each.rows) for each in alone.loads] == [("one", 1)]
    assert ps.replay(spark, app, lake, where="id < 0", load="none").loads == []

    with pytest.raises(InvalidInput, match=r"where: Spark cannot read it: .*nonsense"):
        ps.replay(spark, app, lake, where="nonsense = 1", load="x")
    with pytest.raises(InvalidInput, match="where: a condition is needed"):
        ps.replay(spark, app, lake, where=" ", load="x")
    with pytest.raises(InvalidInput, match="load"):
        ps.replay(spark, app, lake, where="true", load="")


def test_a_task_that_the_app_does_not_declare_any_more_is_not_replayed(spark: SparkSession, app: App) -> None:
    queue = app.queue("mail")
    queue.task(name="gone", max_attempts=1)(lambda: None).enqueue()
    app.work(until_idle=True)
    with App(app.url) as now:
        now.queue("mail").task(name="send")(lambda to: None)
        with pytest.raises(UnknownTask, match="declares no task 'gone' of queue 'mail'; it has send"):
            ps.replay(spark, now, None, "task = 'gone'", "again")
        assert ps.replay(spark, now, None, "task = 'gone'", "again", dry_run=True).jobs == 1
        assert now.loads() == []
