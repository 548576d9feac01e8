"""What is told of a whole system, over all of its databases."""

from __future__ import annotations

from datetime import timedelta

from tests.servers import created_database
from tests.shards.two_sites import TwoSites
from tests.system.conftest import Execute, MakeApp, Working
from tests.system.facts import eventually
from tests.system.scraped import Scraped, parse

from penstock import App, Discard
from penstock.metrics import OF_SYSTEM, CachedMetrics, ServerHealth, server_live, server_ready, system_metrics
from penstock.metrics.definitions import Metric

SUMS = {
    "waiting": "queue_length",
    "running": "active_count",
    "scheduled": "scheduled",
    "blocked": "blocked",
    "dead": "dead",
    **{
        f"{name}_total": f"total_{name}"
        for name in ("enqueued", "completed", "failed", "cancelled", "discarded", "expired")
    },
}


def scrape(app: App) -> Scraped:
    return parse(system_metrics(app.databases))


def of_queue(found: Scraped, name: str, queue: str) -> float:
    return sum(found.values(name, queue=queue))


def test_what_is_told_adds_up_to_what_the_stats_tell(app: App) -> None:
    queue = app.queue("q", limit=3)

    @queue.task(max_attempts=1)
    def do(n: int) -> None:
        if n == 1:
            raise ValueError(n)
        if n == 2:
            raise Discard("no")

    for n in range(6):
        do.enqueue(n=n)
    app.work(until_idle=True)
    waiting = [do.enqueue(n=n) for n in range(7)]
    do.options(delay=timedelta(days=1).total_seconds()).enqueue(n=9)
    do.options(after=[waiting[0]]).enqueue(n=9)
    app.cancel(waiting[3])
    stats, found = app.stats("q"), scrape(app)
    for name, other in SUMS.items():
        assert of_queue(found, f"penstock_jobs_{name}", "q") == getattr(stats, other), name
    assert {(each["partition"], each["shard"]) for each in found.labels_of("penstock_jobs_waiting")} == {
        (each.name, each.shard) for each in stats.partitions
    }
    assert found.values("penstock_running_limit", queue="q") == [3] * len(stats.partitions)
    # No worker is left.
    assert sum(found.values("penstock_queue_workers", queue="q")) == 0
    assert found.values("penstock_task_without_worker_seconds", queue="q", task="do")
    assert found.values("penstock_shard_up") == [1] * len(app.shards)
    assert found.values("penstock_queue_paused", queue="q") == [0]
    app.pause("q")
    assert scrape(app).values("penstock_queue_paused", queue="q") == [1]


def test_every_metric_that_is_told_is_one_of_those_that_are_defined(app: App) -> None:
    queue = app.queue("q", limit=3, max_length=100, rate="5/s")
    queue.task(name="do")(lambda: None).enqueue()
    app.queue("total", total_limit=3, total_rate="5/s").task(name="do")(lambda: None).enqueue()
    found = scrape(app)
    told = {name: Metric(name, kind, labels_of(found, name), found.helps[name]) for name, kind in found.kinds.items()}  # type: ignore[arg-type]
    assert told == {each.name: each for each in OF_SYSTEM}


def labels_of(found: Scraped, name: str) -> tuple[str, ...]:
    """The labels of its series, in the order of the definition."""
    (labels,) = {frozenset(each) for each in found.labels_of(name)}
    return tuple(label for label in ("queue", "partition", "task", "shard") if label in labels)


def test_what_a_producer_makes_up_is_no_label(app: App, execute: Execute) -> None:
    queue = app.queue("q", order="key", fair_by="tenant")
    do = queue.task(name="announced", key="n")(lambda n: None)
    do.options(tenant="secret-tenant", tags=["secret-tag"], idempotency_key="secret-i").enqueue(n="secret-key")
    app.queue("plain").task(name="announced")(lambda: None).enqueue()
    execute("select penstock.enqueue('plain', 'secret-task', '{}', tenant => 'secret-tenant', priority => 0)")
    text = system_metrics(app.databases)
    assert b"secret" not in text
    found = parse(text)
    assert max(found.values("penstock_task_without_worker_seconds", queue="q", task="announced")) > 0
    assert sum(found.values("penstock_tasks_without_worker", queue="plain")) >= 2
    assert found.value("penstock_left_out_tasks") == len(app.shards)


def test_workers_are_told_while_they_live(app: App, working: Working) -> None:
    app.queue("q").task(name="do")(lambda: None)
    with working(app, concurrency=5):
        eventually(lambda: set(scrape(app).values("penstock_workers")) == {1}, "it works")
        found = scrape(app)
        assert set(found.values("penstock_workers_concurrency")) == {5}
        assert set(found.values("penstock_queue_workers", queue="q")) == {1}
    assert set(scrape(app).values("penstock_workers")) == {0}


def test_a_text_is_the_same_for_a_second(app: App) -> None:
    do = app.queue("q").task(name="do")(lambda: None)
    do.enqueue()
    metrics = CachedMetrics(app.databases)
    text = metrics.text()
    assert metrics.text() is text
    do.enqueue()
    eventually(lambda: of_queue(parse(metrics.text()), "penstock_jobs_waiting", "q") == 2, "it is read again")


def test_a_server_is_ready_where_a_database_answers_and_has_a_schema_that_fits(
    app: App, make_app: MakeApp, execute: Execute
) -> None:
    app.queue("q").task(name="do")(lambda: None).enqueue()
    assert server_live().status == 200
    assert server_ready(app.databases) == (True, "ready")
    execute("update penstock.function_set set oldest_program = 1000000")
    health = server_ready(app.databases)
    assert (health.status, health.text) == (503, "no database that fits this program answers")
    assert not ServerHealth(app.databases).ready().is_ok


def test_a_shard_that_is_down_is_told_and_the_others_are_told_all_the_same(shard_urls: list[str]) -> None:
    sites = TwoSites(shard_urls, is_distant=True)
    try:
        sites.put(1, 3)
        sites.put(2, 4)
        assert of_queue(scrape(sites.app), "penstock_jobs_waiting", "q") == 7
        sites.proxy.go_down()
        eventually(lambda: scrape(sites.app).value("penstock_shard_up", shard="2") == 0, "it is down")
        found = scrape(sites.app)
        assert found.value("penstock_shard_up", shard="1") == 1
        assert of_queue(found, "penstock_jobs_waiting", "q") == 3
        assert not found.values("penstock_shard_writable", shard="2")
        assert server_ready(sites.app.databases).is_ok
    finally:
        sites.proxy.come_up()
        sites.close()


def test_where_no_database_answers_that_is_what_is_told(server_url: str, template_database: str) -> None:
    with created_database(server_url, template_database) as url:
        app = App(url, request_timeout=1.0)
        databases = app.databases
    # The database is gone.
    try:
        found = parse(system_metrics(databases))
        assert found.values("penstock_shard_up") == [0]
        assert found.labels_of("penstock_jobs_waiting") == []
        assert server_ready(databases).status == 503
    finally:
        app.close()
