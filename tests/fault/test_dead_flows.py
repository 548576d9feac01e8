"""G2, G5, G9, G13: a TCP connection that dies without a word costs itself, not the worker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec
import psycopg
import pytest
from tests.fault.crew import build
from tests.fault.proxy import Cut, Proxy, called
from tests.fault.stage import MakeStage, Stage, eventually, times
from tests.fault.tally import brought
from tests.fault.test_lost_answers import is_commit_in, is_turn_in

CUTS: list[Cut] = ["swallowed", "unheard"]
SESSIONS = (
    "select pid, backend_start from pg_stat_activity where datname = current_database() and application_name = %s"
)


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    proxy = Proxy(database_url)
    yield proxy
    proxy.close()


@pytest.fixture
def ordered(make_stage: MakeStage, database_url: str) -> Stage:
    return make_stage(database_url, ordered=2)


@pytest.fixture
def watching(database_url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


Watching = psycopg.Connection[tuple[object, ...]]


def sessions(watching: Watching, name: str) -> dict[object, object]:
    return dict(watching.execute(SESSIONS, [name]).fetchall())  # type: ignore[arg-type]


def enqueue(stage: Stage) -> None:
    stage.enqueue("plain", 20)
    stage.enqueue_steps("ordered", 20, 4)


def is_back(watching: Watching, name: str, since: object) -> bool:
    """Whether there is a new session of that name."""
    assert isinstance(since, datetime)
    return any(isinstance(began, datetime) and began > since for began in sessions(watching, name).values())


def now(watching: Watching) -> object:
    row = watching.execute("select clock_timestamp()").fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize("name", ["penstock conductor", "penstock heartbeat", "penstock listener", "penstock"])
def test_g2_g9_g13_a_worker_comes_back_when_a_flow_goes_dead(
    ordered: Stage, proxy: Proxy, watching: Watching, name: str
) -> None:
    # Alone: nobody else can have done its work.
    worker = ordered.worker(url=proxy.url, work_seconds=0.005)
    for _ in range(times(1, 4)):
        before = ordered.settles()
        enqueue(ordered)
        eventually(lambda: ordered.settles() > before, "the worker is at work")  # noqa: B023
        eventually(lambda: sessions(watching, name), f"the worker has a {name}")
        eventually(lambda: proxy.kill_flows(called(name)), "its flow is dead")
        killed_at = now(watching)
        enqueue(ordered)
        eventually(lambda: is_back(watching, name, killed_at), f"the worker has another {name}")  # noqa: B023
        eventually(ordered.is_drained, "everything was done all the same")
        assert worker.poll() is None
        brought("flow black-holed")
    ordered.verdict().require("a settle")


@pytest.mark.parametrize("cut", ["swallowed", "unheard"])
def test_g2_g5_g13_a_turn_on_a_flow_that_goes_dead_is_not_waited_for(ordered: Stage, proxy: Proxy, cut: Cut) -> None:
    ordered.worker(url=proxy.url, work_seconds=0.005)
    for _ in range(times(1, 4)):
        before, cuts = ordered.settles(), proxy.cut_count
        enqueue(ordered)
        eventually(lambda: ordered.settles() > before, "the worker is at work")  # noqa: B023
        proxy.cut_next(cut, is_turn_in)
        enqueue(ordered)
        eventually(lambda: proxy.cut_count > cuts, "a turn was lost")  # noqa: B023
        eventually(ordered.is_drained, "everything was done all the same")
        brought("flow black-holed")
    ordered.verdict().require("a settle")


@pytest.mark.parametrize("count", [1, 5, 150], ids=["single", "few", "copied"])
def test_g3_g11_g13_a_producer_whose_flow_goes_dead_writes_once(stage: Stage, proxy: Proxy, count: int) -> None:
    app = build(msgspec.structs.replace(stage.orders, url=proxy.url))

    def is_commit(chunk: bytes, said: bytes) -> bool:
        return is_commit_in(chunk, said) if count >= 100 else b'"label"' in chunk

    for _ in range(times(1, 4)):
        stage.enqueue("plain", count, app)
        # Before the call, before its commit arrives, and before the answer does.
        proxy.kill_flows(called("penstock"))
        stage.enqueue("plain", count, app)
        for cut in CUTS:
            proxy.cut_next(cut, is_commit)
            stage.enqueue("plain", count, app)
        brought("flow black-holed", 3)
    app.close()
    verdict = stage.verdict()
    verdict.require("a settle")
    assert not verdict.sometimes["an enqueue of unknown outcome"]


def test_g9_g13_a_worker_whose_conductor_is_never_heard_lets_its_jobs_go(ordered: Stage, proxy: Proxy) -> None:
    distant = ordered.worker(url=proxy.url, work_seconds=0.005)
    enqueue(ordered)
    eventually(lambda: ordered.settles() >= 40, "the worker is at work")
    for _ in range(times(1, 2)):
        # Its heartbeat is answered all the while.
        proxy.lose(called("penstock conductor"))
        healthy = ordered.worker(work_seconds=0.005)
        enqueue(ordered)
        eventually(lambda: ordered.has_lost_its_partitions(distant.pid), "others have its partitions")
        eventually(ordered.is_drained, "the other worker has done everything")
        assert distant.poll() is None
        proxy.lose()
        healthy.terminate()
        healthy.wait()
        enqueue(ordered)
        eventually(ordered.is_drained, "the worker is back")
        brought("flow black-holed")
    ordered.verdict().require("a settle")


def test_g13_a_lock_that_somebody_holds_for_leases_loses_no_worker_its_jobs(stage: Stage, watching: Watching) -> None:
    stage.worker(work_seconds=0.005)
    stage.enqueue("plain", 5)
    eventually(lambda: stage.settles() >= 5, "the worker is at work")
    name = "penstock conductor"
    registered = watching.execute("select id from penstock.worker").fetchall()
    with psycopg.connect(stage.url) as holder:
        # Nothing can be settled, and the rest goes on.
        holder.execute("lock table penstock.finished in share mode")
        stage.enqueue("plain", 5)
        since = now(watching)
        for _ in range(3):
            # It is cut when it has waited for a lease, is answered, and waits again.
            eventually(lambda: is_back(watching, name, since), "the conductor was cut off")  # noqa: B023
            since = now(watching)
        beaten = "select from penstock.worker where renewed_at > %s"
        eventually(lambda: watching.execute(beaten, [since]).rowcount, "it renews all the same")
    eventually(lambda: stage.settles() >= 10, "the worker goes on")
    assert watching.execute("select id from penstock.worker").fetchall() == registered
    verdict = stage.verdict()
    verdict.require("a settle")
    assert not verdict.sometimes["a job run again"]
