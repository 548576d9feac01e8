"""Waits and run times of each minute, as real workers count them."""

from __future__ import annotations

import threading

import pytest
from tests.system.conftest import MakeApp, Working
from tests.system.facts import eventually

from penstock import App, Minute, Retry


def told(app: App, queue: str) -> list[Minute]:
    return [minute for minute in app.history(queue).minutes if minute.run_seconds is not None]


def test_what_a_worker_ran_is_told_by_queue_when_it_stops(app: App) -> None:
    plain, ordered = app.queue("plain"), app.queue("ordered", order="key")
    took = threading.Event()

    @plain.task(max_attempts=2, backoff=0)
    def try_twice(n: int) -> None:
        if n == 0:
            raise Retry(0)

    @ordered.task(key="key")
    def wait(key: str) -> None:
        took.wait(0.02)

    try_twice.enqueue_many([{"n": n} for n in range(5)])
    wait.enqueue_many([{"key": f"k-{n % 2}"} for n in range(8)])
    app.work(until_idle=True)
    counts = {
        queue: [
            sum(each.count for minute in told(app, queue) if (each := getattr(minute, name)) is not None)
            for name in ("wait_seconds", "run_seconds")
        ]
        for queue in ("plain", "ordered")
    }
    # The one that is tried twice is two attempts.
    assert counts == {"plain": [6, 6], "ordered": [8, 8]}
    for minute in told(app, "ordered"):
        assert minute.run_seconds is not None
        assert minute.wait_seconds is not None
        assert minute.run_seconds.p50 > 0.01
        assert minute.wait_seconds.p50 < 3600


@pytest.mark.long_run
def test_a_worker_that_goes_on_tells_what_it_ran_when_the_minute_is_over(make_app: MakeApp, working: Working) -> None:
    app = make_app()
    queue = app.queue("q")

    @queue.task
    def run() -> None:
        pass

    with working(app):
        run.enqueue_many([{}] * 7)
        eventually(lambda: app.stats("q").total_completed == 7, "all have run")
        eventually(lambda: told(app, "q"), "the minute is over, and told")
        assert app.workers()
        (minute,) = told(app, "q")
        assert minute.run_seconds is not None
        assert minute.run_seconds.count == 7
