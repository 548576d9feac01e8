"""One worker serves the jobs of several databases, and none of them keeps it from the others."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import psycopg
import pytest
from tests.shards.two_sites import TwoSites
from tests.system.facts import eventually

from penstock import App, Context


@pytest.fixture
def sites(shard_urls: list[str]) -> Iterator[TwoSites]:
    sites = TwoSites(shard_urls)
    yield sites
    sites.close()


@pytest.fixture
def distant(shard_urls: list[str]) -> Iterator[TwoSites]:
    sites = TwoSites(shard_urls, is_distant=True)
    yield sites
    sites.close()


class Starts:
    """A handler that notes which shard its job came from, and how many run at once; it ends when it is let."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.shards: list[int] = []
        self.most = 0
        self.may_end = threading.Event()
        self._seconds = seconds
        self._running = 0
        self._lock = threading.Lock()

    def __call__(self, n: int, at: int) -> None:
        with self._lock:
            self.shards.append(at)
            self._running += 1
            self.most = max(self.most, self._running)
        self.may_end.wait(self._seconds)
        with self._lock:
            self._running -= 1


def declare(app: App, handler: Callable[..., object], **options: object) -> None:
    app.queue("q", partitions=2).task(name="t", **options)(handler)  # type: ignore[call-overload]


def test_jobs_of_both_shards_are_run_and_counted_together(sites: TwoSites) -> None:
    starts = Starts()
    declare(sites.app, starts)
    sites.put(1, 300)
    sites.put(2, 200)
    worked = sites.app.work(until_idle=True)
    assert worked == (500, 0, 0, 0)
    assert Counter(starts.shards) == {1: 300, 2: 200}
    assert sites.left(1) == sites.left(2) == 0


def test_a_worker_is_the_same_instance_on_every_shard(sites: TwoSites) -> None:
    declare(sites.app, Starts())
    with sites.working():

        def registered() -> list[tuple[str, str]]:
            return [
                row for shard in (1, 2) for row in sites.execute(shard, "select instance, pid from penstock.worker")
            ]

        eventually(lambda: len(registered()) == 2, "it registers on both")
        assert len(set(registered())) == 1
    assert registered() == []


@pytest.mark.parametrize("is_async", [False, True])
def test_never_more_run_than_there_are_slots_and_each_shard_has_its_part(sites: TwoSites, is_async: bool) -> None:
    starts = Starts(0.03)

    async def run(n: int, at: int) -> None:
        await asyncio.to_thread(starts, n, at)

    declare(sites.app, run if is_async else starts)
    sites.put(1, 150)
    sites.put(2, 150)
    assert sites.app.work(until_idle=True, concurrency=5).succeeded == 300
    assert starts.most <= 5
    assert min(starts.shards[:150].count(shard) for shard in (1, 2)) > 30


def test_threads_and_the_event_loop_have_the_slots_together(sites: TwoSites) -> None:
    starts = Starts(0.02)

    async def wait(n: int, at: int) -> None:
        await asyncio.to_thread(starts, n, at)

    declare(sites.app, starts)
    sites.app.queue("q", partitions=2).task(name="async")(wait)
    for shard in (1, 2):
        sites.put(shard, 40)
        sites.put(shard, 40, task="async")
    assert sites.app.work(until_idle=True, concurrency=3).succeeded == 160
    assert starts.most <= 3


def test_with_one_slot_two_shards_take_turns(sites: TwoSites) -> None:
    starts = Starts(0.04)
    declare(sites.app, starts)
    sites.put(1, 30)
    sites.put(2, 30)
    assert sites.app.work(until_idle=True, concurrency=1).succeeded == 60
    assert starts.most == 1
    # A turn may be missed while a database is slow to answer.
    changes = sum(a != b for a, b in zip(starts.shards, starts.shards[1:], strict=False))
    assert changes > 40


@pytest.mark.parametrize("seconds", [0.05, 0.0005])
def test_a_deep_shard_does_not_starve_a_shallow_one(sites: TwoSites, seconds: float) -> None:
    starts = Starts(seconds)
    declare(sites.app, starts)
    count = int(12 / seconds)
    sites.put(1, min(count, 20_000))
    with sites.working(concurrency=4):
        eventually(lambda: len(starts.shards) > 8, "the deep one runs in every slot")
        sites.put(2, 8)
        eventually(lambda: sites.left(2) == 0, "the shallow one is done")
        assert sites.left(1) > 0


def test_g11_a_shard_that_is_down_at_the_start_is_taken_up_when_it_answers(
    distant: TwoSites, caplog: pytest.LogCaptureFixture
) -> None:
    declare(distant.app, Starts())
    distant.app.work(until_idle=True)
    distant.put(1, 50)
    distant.put(2, 50)
    distant.proxy.go_down()
    caplog.set_level(logging.WARNING, "penstock")
    with distant.working():
        eventually(lambda: distant.left(1) == 0, "the shard that answers is worked on")
        assert distant.left(2) == 50
        eventually(lambda: any("shard 2" in record.getMessage() for record in caplog.records), "it is said which")
        distant.proxy.come_up()
        eventually(lambda: distant.left(2) == 0, "the other is taken up when it is back")


@pytest.mark.parametrize("fault", ["down", "hanging", "read-only"])
def test_g11_a_shard_that_fails_delays_no_other_and_goes_on_when_it_is_back(distant: TwoSites, fault: str) -> None:
    starts = Starts(0.002)
    declare(distant.app, starts)
    distant.put(2, 3_000)
    with distant.working(concurrency=4):
        eventually(lambda: starts.shards.count(2) > 20, "both are worked on")
        name = distant.direct[2].rpartition("/")[2]
        if fault == "down":
            distant.proxy.go_down()
        elif fault == "hanging":
            distant.proxy.stall()
        else:
            distant.execute(2, f"alter database {name} set default_transaction_read_only = on")
            distant.execute(
                2,
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()",
            )
        # More than once: what was claimed of the other ends meanwhile.
        for _ in range(4):
            distant.put(1, 100)
            eventually(lambda: distant.left(1) == 0, "the shard that answers is worked on")
        assert distant.left(2) > 0
        if fault == "read-only":
            with psycopg.connect(distant.direct[2], autocommit=True) as connection:
                connection.execute("set default_transaction_read_only = off")
                connection.execute(f"alter database {name} reset default_transaction_read_only")
        distant.proxy.come_up()
        distant.proxy.flow()
        eventually(lambda: distant.left(2) == 0, "the other goes on when it is back")


def test_until_idle_waits_for_jobs_that_jobs_of_other_shards_enqueue(sites: TwoSites) -> None:
    ran: list[int] = []

    def hop(n: int, at: int, hops: int) -> None:
        ran.append(at)
        time.sleep(0.05)
        if hops:
            sites.put(3 - at, hops=hops - 1)

    declare(sites.app, hop)
    sites.put(1, hops=30)
    sites.app.work(until_idle=True)
    assert ran == [1, 2] * 15 + [1]


def test_until_idle_leaves_out_a_shard_that_does_not_answer(
    distant: TwoSites, caplog: pytest.LogCaptureFixture
) -> None:
    declare(distant.app, Starts())
    distant.app.work(until_idle=True)
    distant.put(1, 50)
    distant.put(2, 50)
    distant.proxy.go_down()
    assert distant.app.work(until_idle=True).succeeded == 50
    assert "shard 2" in caplog.text
    assert "all others are idle" in caplog.text
    distant.proxy.come_up()
    assert distant.app.work(until_idle=True).succeeded == 50


def test_a_stop_lets_handlers_of_all_shards_end(sites: TwoSites) -> None:
    starts = Starts(30.0)
    declare(sites.app, starts)
    sites.put(1, 2)
    sites.put(2, 2)
    with sites.working(concurrency=4) as worked:
        eventually(lambda: len(starts.shards) == 4, "all run")
        sites.app.stop()
        starts.may_end.set()
        assert worked().succeeded == 4
    assert (
        sites.execute(1, "select id from penstock.worker") == sites.execute(2, "select id from penstock.worker") == []
    )


@pytest.mark.parametrize("fault", ["down", "hanging"])
def test_a_stop_does_not_wait_for_a_shard_that_does_not_answer_and_holds_nothing(distant: TwoSites, fault: str) -> None:
    declare(distant.app, Starts())
    with distant.working(grace=3_600.0) as worked:
        eventually(lambda: distant.execute(2, "select id from penstock.worker"), "it has registered")
        distant.proxy.go_down() if fault == "down" else distant.proxy.stall()
        distant.put(1, 5)
        eventually(lambda: distant.left(1) == 0, "the other goes on")
        distant.app.stop()
        worked()


def test_what_a_handler_says_goes_to_the_shard_of_its_job(sites: TwoSites) -> None:
    """context.settle, progress and cancellation."""
    asked: list[int] = []

    def settle(context: Context, n: int, at: int) -> None:
        if n == 0:
            with psycopg.connect(sites.direct[at]) as connection:
                context.settle(connection, {"settled": at})
        elif n == 1:
            context.progress(0.5, f"at {at}")
            while not context.is_cancelled:
                time.sleep(0.01)
            asked.append(at)

    declare(sites.app, settle)
    ids = {shard: sites.put(shard, 2) for shard in (1, 2)}
    with sites.working() as worked:
        for shard in (1, 2):
            say = "select note from penstock.progress where job_id = %s"
            eventually(lambda: sites.execute(shard, say, ids[shard][1]) == [(f"at {shard}",)], "progress is stored")  # noqa: B023
        for shard in (2, 1):
            sites.execute(shard, "insert into penstock.cancellation (job_id) values (%s)", ids[shard][1])
            eventually(lambda: shard in asked, "it is asked to stop")  # noqa: B023
        eventually(lambda: sites.left(1) + sites.left(2) == 0, "all has ended")
        sites.app.stop()
        assert worked().succeeded == 2
    for shard in (1, 2):
        found = sites.execute(shard, "select result from penstock.finished_job where job_id = %s", ids[shard][0])
        assert [row[0] for row in found] == [{"settled": shard}]


def test_a_slot_does_not_wait_for_the_shard_whose_job_settled_itself(distant: TwoSites) -> None:
    away = threading.Event()

    def settle(context: Context, n: int, at: int) -> None:
        if at == 2:
            with psycopg.connect(distant.direct[at]) as connection:
                context.settle(connection)
            distant.proxy.go_down()
            eventually(lambda: distant.app.databases.of(2).breaker.is_down, "it is noticed")
            away.set()

    declare(distant.app, settle)
    (job,) = distant.put(2)
    with distant.working(concurrency=1):
        assert away.wait(60)
        distant.put(1, 20)
        eventually(lambda: distant.left(1) == 0, "the one slot is free for the other shard")
        distant.proxy.come_up()
        eventually(lambda: distant.left(2) == 0, "what the handler committed stands")
    (row,) = distant.execute(2, "select attempt from penstock.finished_job where job_id = %s", job)
    assert row == (1,)


def test_a_timeout_ends_a_job_on_its_own_shard(sites: TwoSites) -> None:
    starts = Starts(30.0)
    declare(sites.app, starts, timeout=0.2, max_attempts=1)
    sites.put(2)
    sites.put(1)
    with sites.working():
        for shard in (1, 2):
            eventually(lambda: sites.execute(shard, "select job_id from penstock.dead"), "it ends by its timeout")  # noqa: B023
        starts.may_end.set()


def test_a_shard_that_is_added_is_taken_up(sites: TwoSites, database_url: str) -> None:
    declare(sites.app, Starts())
    with sites.working():
        eventually(lambda: sites.execute(1, "select id from penstock.worker"), "it works")
        with App(shards=sites.urls) as other:
            assert other.add_shard(database_url) == 3
        with psycopg.connect(database_url, autocommit=True) as connection:
            eventually(
                lambda: connection.execute("select id from penstock.worker").fetchall(), "it registers there too"
            )
