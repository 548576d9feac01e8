"""Pickup: how soon an idle worker starts a job, at 100 jobs a second, one by one and unevenly spaced.

Taken from when the call of `enqueue` returned until the first line of the handler, in another process, by the clock
both share. A handler may start before the producer has heard that its job is durable; such a pickup counts as it is,
below zero. The same from when the call began is stated too. Beside it stands what a raw notification takes on the same
server: from when `select pg_notify` was called until another process, which waits for it with psycopg, has it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bench.completion import wait_for_completed
from bench.processes import processes, running
from bench.run import Run
from bench.server import Server, connect
from bench.workload import QUEUE
from penstock import App

QUESTION = "How soon does an idle worker start a job, against a raw notification?"

JOBS_A_SECOND = 100
WARM_UP = 50
PERCENTILES = (50, 95, 99)
CHANNEL = "raw"


def measure(run: Run) -> None:
    jobs = run.size(3_000, 300)
    after_return: dict[int, list[float]] = {each: [] for each in PERCENTILES}
    after_call: dict[int, list[float]] = {each: [] for each in PERCENTILES}
    notified: dict[int, list[float]] = {each: [] for each in PERCENTILES}
    beside: dict[int, list[float]] = {each: [] for each in PERCENTILES}
    for _ in run.repeats():
        called, returned, started = pickup(run.server, jobs)
        _, returned_beside, started_beside = pickup(run.server, jobs, workers=2)
        sent, _, heard = notifications(run.server, jobs)
        for percentile in PERCENTILES:
            after_return[percentile].append(percentile_of(returned, started, percentile))
            after_call[percentile].append(percentile_of(called, started, percentile))
            notified[percentile].append(percentile_of(sent, heard, percentile))
            beside[percentile].append(percentile_of(returned_beside, started_beside, percentile))
    for percentile in PERCENTILES:
        run.compare(
            f"pickup p{percentile}, from the return of enqueue",
            "ms",
            after_return[percentile],
            f"raw NOTIFY p{percentile}",
            notified[percentile],
            at_most=3 if percentile == 50 else None,
        )
    for percentile in PERCENTILES:
        name = f"pickup p{percentile}, from the call of enqueue"
        run.compare(name, "ms", after_call[percentile], f"raw NOTIFY p{percentile}", notified[percentile])
    for percentile in PERCENTILES:
        name = f"pickup p{percentile}, from the return of enqueue, 2 workers"
        run.compare(name, "ms", beside[percentile], "1 worker", after_return[percentile])
    run.note(f"{jobs:,} jobs at {JOBS_A_SECOND} a second, workers with concurrency 16; NOTIFY from call to arrival")


Times = list[int]


def pickup(server: Server, jobs: int, workers: int = 1) -> tuple[Times, Times, Times]:
    """Of each job, when its enqueue was called and returned and when its handler started, in nanoseconds."""
    started = processes.Array("q", jobs + WARM_UP, lock=False)
    with server.database() as url, connect(url) as connection, ExitStack() as stack:
        at_work = [stack.enter_context(running(_work, url, started)) for _ in range(workers)]
        while connection.execute("select count(*) from penstock.sleeper").fetchone()[0] < workers:
            time.sleep(0.02)
        app, task = _declare(url, started)
        with app:
            task.enqueue(place=0)
            wait_for_completed(connection, 1, at_work)
            called, returned = at_a_steady_rate(jobs + WARM_UP, lambda place: task.enqueue(place=place))
            wait_for_completed(connection, 1 + jobs + WARM_UP, at_work)
    return called[WARM_UP:], returned[WARM_UP:], list(started)[WARM_UP:]


def notifications(server: Server, jobs: int) -> tuple[Times, Times, Times]:
    """The same of notifications: called, returned, heard."""
    heard = processes.Array("q", jobs + WARM_UP, lock=False)
    is_listening, is_done = processes.Event(), processes.Event()
    with server.database() as url, connect(url) as connection, running(_listen, url, heard, is_listening, is_done):
        if not is_listening.wait(60):
            raise RuntimeError("the listener did not get ready; what it said stands above")
        called, returned = at_a_steady_rate(
            jobs + WARM_UP, lambda place: connection.execute("select pg_notify(%s, %s)", [CHANNEL, str(place)])
        )
        if not is_done.wait(60):
            raise RuntimeError("notifications were lost")
    return called[WARM_UP:], returned[WARM_UP:], list(heard)[WARM_UP:]


def at_a_steady_rate(count: int, act: Callable[[int], Any], a_second: float = JOBS_A_SECOND) -> tuple[Times, Times]:
    """Act so many times, each at its time; when each was called and had returned."""
    # Uneven, so that nothing that ticks can fall into step.
    spaces = random.Random(7)
    called, returned = [], []
    due = time.monotonic()
    for place in range(count):
        due += spaces.uniform(0.5, 1.5) / a_second
        time.sleep(max(0.0, due - time.monotonic()))
        called.append(time.monotonic_ns())
        act(place)
        returned.append(time.monotonic_ns())
    return called, returned


def _declare(url: str, started: Any) -> tuple[App, Any]:
    app = App(url)

    def note_start(place: int) -> None:
        started[place] = time.monotonic_ns()

    return app, app.queue(QUEUE).task(note_start)


def _work(url: str, started: Any) -> None:
    app, _ = _declare(url, started)
    with app:
        app.work()


def _listen(url: str, heard: Any, is_listening: Any, is_done: Any) -> None:
    with connect(url) as connection:
        connection.execute(f"listen {CHANNEL}")
        is_listening.set()
        for notification in connection.notifies():
            place = int(notification.payload)
            heard[place] = time.monotonic_ns()
            if place == len(heard) - 1:
                is_done.set()
                return


def percentile_of(begins: Times, ends: Times, percentile: int) -> float:
    """In milliseconds."""
    spans = sorted(end - begin for begin, end in zip(begins, ends, strict=True))
    return spans[min(len(spans) * percentile // 100, len(spans) - 1)] / 1e6
