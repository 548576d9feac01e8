"""The alert rules and the dashboard: Prometheus's own judge evaluates them on what real exporters tell."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.shards.two_sites import TwoSites
from tests.system.facts import eventually
from tests.system.promtool import Query, check_metrics, check_rules, evaluate, series_of
from tests.system.scraped import Scraped, parse

from penstock import App
from penstock.metrics import OF_SYSTEM, OF_WORKER, system_metrics, worker_metrics
from penstock.metrics.series_bound import bound_series
from penstock.worker import DatabaseSnapshot, WorkerSnapshot

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
ALERTS = MONITORING / "alerts.yml"
DASHBOARD = MONITORING / "grafana-dashboard.json"
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'
# What stands in a query and is no name of ours.
_STRING = re.compile(r'"[^"]*"')
_OURS = re.compile(r"penstock_\w+")
_LABELS = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)|\{([^}]*)\}")
_OF_PROMETHEUS = {"le", "instance"}


class System:
    """A system on two shards, and a worker of this process, as both tell themselves."""

    def __init__(self, sites: TwoSites) -> None:
        self.sites = sites
        self.app = sites.app
        self.app.working.has_figures = True
        self.queue = self.app.queue("q", partitions=2)
        self.do = self.queue.task(name="do", max_attempts=1)(_do)
        self.limited = self.app.queue("limited", limit=1, max_length=10, rate="100/s").task(name="do")(_do)
        self.whole = self.app.queue("whole", total_limit=1, total_rate="100/s").task(name="do")(_do)
        self.ordered = self.app.queue("ordered", order="key", on_dead="halt").task(name="do", key="n", max_attempts=1)(
            _do
        )

    def tell(self) -> tuple[bytes, bytes]:
        """What a server tells, and a worker."""
        return system_metrics(self.app.databases), worker_metrics(self.app.working.snapshots())

    def scrape(self) -> Scraped:
        """Both at once: Prometheus keeps them together."""
        both = Scraped()
        for text in self.tell():
            found = parse(text)
            both.samples.update(found.samples)
            both.kinds.update(found.kinds)
        return both

    def execute(self, statement: str, *parameters: Any) -> None:
        for url in self.sites.direct.values():
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(statement.encode(), parameters)


def _do(n: int) -> None:
    if n < 0:
        raise ValueError(n)


@pytest.fixture
def system(shard_urls: list[str]) -> Iterator[System]:
    sites = TwoSites(shard_urls, is_distant=True, lease=15.0)
    yield System(sites)
    sites.close()


def healthy(system: System) -> Scraped:
    """A worker works, and nothing waits for long."""
    for n in range(3):
        for task in (system.do, system.limited, system.whole, system.ordered):
            task.enqueue(n=n)
    with system.sites.working(until_idle=False):
        eventually(lambda: not _left(system.app), "all is done")
        eventually(lambda: system.scrape().value("penstock_worker_ready") == 1, "it is ready")
        eventually(lambda: system.scrape().value("penstock_workers", shard="2") == 1, "it is on both")
        check_metrics(b"".join(system.tell()))
        return system.scrape()


def troubled(system: System) -> Scraped:
    """Everything is wrong that an alert is about, but for what a shard that is down and a worker tell."""
    system.do.enqueue(n=-1)
    system.ordered.enqueue(n=-1)
    system.app.work(until_idle=True)
    system.execute("delete from penstock.worker")
    for _ in range(10):
        system.limited.enqueue(n=1)
        system.whole.enqueue(n=1)
        system.do.enqueue(n=1)
    system.execute("select penstock.enqueue('q', 'unknown', '{\"n\": 1}')")
    # Long ago; and what runs is what may.
    system.execute("update penstock.ready set ready_at = now() - interval '1 h'")
    system.execute("update penstock.partition set permits = 1 where name = 'whole'")
    system.execute(
        "insert into penstock.lease (token, worker_id, partition_id, priority, pos, range, low, high, attempt,"
        " rescues, is_ahead, ready_at, task)"
        " select 1, 1, id, 5, 1, id, 0, 1, 1, 0, false, now(), 'do' from penstock.partition"
        " where name in ('limited', 'whole') and shard = (select number from penstock.catalogue)"
    )
    system.execute("update penstock.queue set rules = rules || '{\"max_length\": 10}' where name = 'limited'")
    system.do.options(delay=3_600).enqueue(n=1)
    system.execute("update penstock.scheduled set due_at = now() - interval '10 min'")
    system.execute("insert into penstock.trouble (duty, error, since) values ('fold', 'no', now())")
    system.execute(
        "insert into penstock.worker (id, name, host, pid, version, concurrency, lease_seconds, renewed_at)"
        " values (1, 'w', 'h', 1, '0', 1, 15, now() - interval '1 h'), (2, 'v', 'h', 1, '0', 1, 1000, now())"
    )
    # One lives that serves a queue, and does not know all its tasks.
    system.execute("insert into penstock.worker_task select 2, id, 'do' from penstock.queue where name = 'q'")
    system.execute("select penstock.park()")
    return system.scrape()


def _left(app: App) -> int:
    return sum(each.queue_length + each.active_count for each in app.queues())


def tell_worker(*, is_stuck: bool) -> Scraped:
    """What a worker tells of itself, or one that can do nothing any more."""
    database = DatabaseSnapshot(
        number=1, unready="no" if is_stuck else None, stuck_seconds=99.0 * is_stuck, backlog=0,
        leases_lost=int(is_stuck), figures=(),
    )  # fmt: skip
    snapshot = WorkerSnapshot(
        slots=1, slots_used=1, left_behind=int(is_stuck), is_loop_blocked=False, processes=0, rescued=0,
        databases=(database,),
    )  # fmt: skip
    return parse(worker_metrics([snapshot]))


def read_only(system: System) -> Scraped:
    """What a server tells of shards that take no writes, with so many partitions that some are told together."""
    for url in system.sites.direct.values():
        with psycopg.connect(url, autocommit=True) as connection:
            name = sql.Identifier(connection.info.dbname)
            connection.execute(sql.SQL("alter database {} set default_transaction_read_only = on").format(name))
    with App(shards=list(system.sites.direct.values())) as app:
        return parse(system_metrics(app.databases))


def without_worker(scraped: Scraped) -> Scraped:
    """What a server alone tells."""
    ours = {name: each for name, each in scraped.samples.items() if not name.startswith("penstock_worker_")}
    return Scraped(samples=ours)


def firing(**counts: float) -> dict[str, float]:
    return {f'{{alertname="Penstock{name}"}}': count for name, count in counts.items()}


def test_the_rules_are_rules() -> None:
    assert "SUCCESS" in check_rules(ALERTS)


def test_each_alert_fires_when_its_trouble_is_there_and_none_before(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = healthy(system)
    # What stands still for an hour is told as it is.
    evaluate(tmp_path, ALERTS, series_of(before), [Query(FIRING, {}, 60)])
    wrong = troubled(system)
    server = [without_worker(each) for each in (before, wrong)]
    expected = firing(
        UpkeepBehind=1, UpkeepFailing=2, WorkersSilent=2, LimitExhausted=1, TotalLimitExhausted=1, QueueNearlyFull=1,
        TaskWithoutWorker=1, KeysHalted=1, QueueWithoutWorker=2, BacklogOld=3,
    )  # fmt: skip
    # In the first minutes after it happened.
    dead = Query(FIRING_DEAD, {"{}": 2}, 15)
    twice = [each for instance in ("a:1", "b:1") for each in series_of(*server, instance=instance)]
    # Two servers tell the same system, and no alert comes twice.
    for series in (series_of(*server), twice):
        evaluate(tmp_path, ALERTS, series, [Query(FIRING, expected, 50), dead])

    system.sites.proxy.go_down()
    eventually(lambda: system.scrape().value("penstock_shard_up", shard="2") == 0, "it is down")
    down = without_worker(system.scrape())
    system.sites.proxy.come_up()
    evaluate(tmp_path, ALERTS, series_of(down), [Query(_firing("ShardDown"), {"{}": 1})])

    monkeypatch.setattr("penstock.metrics.system.bound_series", partial(bound_series, most_queues=1))
    queries = [Query(_firing("ShardReadOnly"), {"{}": 2}, 90), Query(_firing("MetricsFolded"), {"{}": 1}, 90)]
    evaluate(tmp_path, ALERTS, series_of(read_only(system)), queries)

    worker = firing(NotScraped=1, WorkerNotReady=1, WorkerStuck=1, HandlersLeftBehind=1)
    series = series_of(tell_worker(is_stuck=False), tell_worker(is_stuck=True))
    evaluate(tmp_path, ALERTS, series, [Query(FIRING, worker, 50), Query(_firing("LeasesLost"), {"{}": 1}, 15)])

    fired = {*expected, *worker, *firing(DeadLetters=1, ShardDown=1, ShardReadOnly=1, MetricsFolded=1, LeasesLost=1)}
    assert {f'{{alertname="{name}"}}' for name in re.findall(r"alert: (\w+)", ALERTS.read_text())} == fired


def _firing(alert: str) -> str:
    return f'count(ALERTS{{alertname="Penstock{alert}", alertstate="firing"}})'


FIRING_DEAD = _firing("DeadLetters")


def test_every_query_of_the_dashboard_finds_something_in_what_is_told(system: System, tmp_path: Path) -> None:
    before, after = healthy(system), troubled(system)
    # The worker that ended is still told: a dashboard shows both. And a queue is paused.
    system.app.pause("limited")
    after.samples.update(system.scrape().samples | {k: v for k, v in before.samples.items() if "_worker_" in k})
    found = [
        Query(f"count({expression}) > bool 0", {"{}": 1})
        for expression in (each.replace("$queue", ".*").replace("$__rate_interval", "10m") for each in expressions())
    ]
    assert len(found) > 40
    evaluate(tmp_path, ALERTS, series_of(before, after), found)


def test_names_and_labels_of_alerts_and_dashboard_are_those_that_exporters_tell(system: System) -> None:
    told = healthy(system).samples | troubled(system).samples
    labels = {name: {label for series in each for label, _ in series} for name, each in told.items()}
    texts = [*expressions(), *conditions()]
    assert len(texts) > 60
    for text in texts:
        names = set(_OURS.findall(_STRING.sub("", text)))
        assert names, text
        assert names <= told.keys(), text
        used = {
            label
            for group in _LABELS.findall(text)
            for label in re.findall(r"([a-z_]+)\s*(?:,|$|=~?|!)", _STRING.sub("", "".join(group)))
        }
        assert used - _OF_PROMETHEUS <= set.union(*(labels[name] for name in names)), text
    # In annotations, too.
    shown = set(re.findall(r"\$labels\.(\w+)", ALERTS.read_text()))
    assert shown <= {label for each in (*OF_SYSTEM, *OF_WORKER) for label in each.labels} | _OF_PROMETHEUS


def test_what_every_server_tells_is_taken_by_its_largest_before_anything_else() -> None:
    names = "|".join(each.name for each in OF_SYSTEM)
    taken = re.compile(rf"(?:max(?: by \([a-z, ]+\) )?|absent)\((?:(?:rate|increase)\()?(?:{names})\b")
    for text in (*expressions(), *conditions()):
        assert len(taken.findall(text)) == len(re.findall(rf"\b(?:{names})\b", text)), text


def conditions() -> list[str]:
    """Every expression of the rules."""
    return re.findall(r"expr: (?:>-\n)?((?:.|\n)*?)\n +(?:for|labels):", ALERTS.read_text())


def expressions() -> list[str]:
    """Every query of the dashboard."""
    dashboard = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
