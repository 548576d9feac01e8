"""A total_rate over two shards: while the leading one is away nothing starts, and whoever asks is told so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.fault.proxy import Proxy
from tests.system.facts import eventually

from penstock import App


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
                before = len(done)
                explained = app.explain(there)
                assert explained.reason.startswith("total_rate 20/s: this partition may start none for now; ")
                assert explained.reason.endswith(" does not answer, and nothing of the queue starts until it does")
                assert len(done) == before
            lead.come_up()
            eventually(lambda: len(done) > before + 20, "jobs start again")
            app.limit("q", total_rate=None)
            eventually(lambda: len(done) >= 400, "all have run")
