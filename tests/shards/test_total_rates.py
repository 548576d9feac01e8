"""A total_rate over two shards: while the leading one is away nothing starts, and whoever asks is told so; while the
other hangs, the leading one goes on; and one that is always slow gets its tokens.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from tests.fault.proxy import Proxy
from tests.system.facts import eventually

from penstock import App
from penstock.shards.permits import ANSWER_SECONDS
from penstock.storage.connection.breaker import Breaker


@pytest.fixture
def lead(shard_urls: list[str]) -> Iterator[Proxy]:
    """What stands before the shard that leads."""
    proxy = Proxy(shard_urls[0])
    yield proxy
    proxy.close()


@contextmanager
def working(app: App) -> Iterator[None]:
    thread = threading.Thread(target=app.work, kwargs={"concurrency": 4})
    thread.start()
    try:
        yield
    finally:
        app.stop()
        thread.join()


def test_while_the_lead_is_down_nothing_starts_and_explain_says_so(shard_urls: list[str], lead: Proxy) -> None:
    done: list[int] = []
    app = App(shards=[lead.url, shard_urls[1]], lease=4.0, request_timeout=10.0)
    with app:
        task = app.queue("q", partitions=2, total_rate="20/s").task(name="t", key="n")(lambda n: done.append(n))
        jobs = task.enqueue_many([{"n": n} for n in range(400)])
        there = [job for job in jobs if app.job(job).partition == app.stats("q").partitions[1].name][-1]
        with working(app):
            eventually(lambda: len(done) > 20, "jobs run on both")
            lead.go_down()
            with psycopg.connect(shard_urls[1], autocommit=True) as connection:
                run_out = "select bool_and(clock_timestamp() > tokens_until) from penstock.partition where shard = 2"
                eventually(lambda: connection.execute(run_out).fetchone() == (True,), "tokens have run out")
                leased = "select count(*) from penstock.lease"
                eventually(lambda: connection.execute(leased).fetchone() == (0,), "what had started has ended")
                eventually(lambda: app.databases.lead.breaker.is_down, "it is known that the lead is down")
                began = "select count(*) from penstock.spent"
                before, spent = len(done), connection.execute(began).fetchone()
                explained = app.explain(there)
                assert explained.reason.startswith("total_rate 20/s: this partition may start none for now; ")
                assert explained.reason.endswith(" does not answer, and nothing of the queue starts until it does")
                # Nobody was let in since tokens ran out, whatever looked meanwhile.
                assert (len(done), connection.execute(began).fetchone()) == (before, spent)
            lead.come_up()
            eventually(lambda: len(done) > before + 20, "jobs start again")
            app.limit("q", total_rate=None)
            eventually(lambda: len(done) >= 400, "all have run")


@pytest.mark.parametrize("options", [{"total_rate": "20/s"}, {"total_rate": "20/s", "total_limit": 4}])
def test_while_another_shard_hangs_jobs_go_on_starting_at_the_lead(
    shard_urls: list[str], second: Proxy, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    done: list[int] = []
    with App(shards=[shard_urls[0], second.url], lease=60.0, request_timeout=10.0) as app:
        task = app.queue("q", partitions=2, **options).task(name="t", key="n")(lambda n: done.append(n))
        jobs = task.enqueue_many([{"n": n} for n in range(400)])
        homes = {n: app.databases.number_of(job) for n, job in enumerate(jobs)}
        with working(app):
            eventually(lambda: {homes[n] for n in done} == {1, 2}, "jobs run on both")
            # It is never found out: whoever waits for that shard waits on.
            monkeypatch.setattr(Breaker, "_note", lambda *_: None)
            second.stall()
            before = len(done)
            # More than all tokens that were out, and those of the next second.
            eventually(lambda: len(done) > before + 60, "jobs start on the shard that answers")
            second.flow()
            app.limit("q", **dict.fromkeys(options))
            eventually(lambda: len(done) >= 400, "all have run")


def test_a_shard_that_always_answers_after_the_others_gets_tokens(shard_urls: list[str], second: Proxy) -> None:
    done: list[int] = []
    with App(shards=[shard_urls[0], second.url], lease=60.0, request_timeout=10.0) as app:
        task = app.queue("q", partitions=2, total_rate="20/s").task(name="t", key="n")(lambda n: done.append(n))
        jobs = task.enqueue_many([{"n": n} for n in range(60)])
        far = {n for n, job in enumerate(jobs) if app.databases.number_of(job) == 2}
        # Both ways together that is longer than a round waits.
        second.delay = ANSWER_SECONDS * 0.55
        with working(app):
            # More than the worker takes at once.
            eventually(lambda: len(far & set(done)) > 8, "jobs of the slow shard start again and again")
            second.delay = 0.0
            app.limit("q", total_rate=None)
            eventually(lambda: len(done) >= 60, "all have run")
