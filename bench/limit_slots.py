"""A limit of 4 with 8 worker processes and jobs of a millisecond: how often more than 4 ran at once, and how well the
4 places are used. Handlers write down when they start and end, by the clock that all processes of a machine share.

A place is in use from claim to settle: that is what the limit counts, and what the database is asked for, some hundred
times a second. The share of the time in which handlers ran stands beside it. What lies between is the commit that
settles a job and claims the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from statistics import mean
from typing import Any, NamedTuple

from bench.completion import wait_for_completed
from bench.processes import processes, running
from bench.run import Run
from bench.server import Server, connect
from bench.workload import QUEUE
from penstock import App

QUESTION = "Does a limit hold exactly, and are its places used?"

LIMIT = 4
WORKERS = 8
CALL = 1_000
JOB_SECONDS = 0.001
LOOK_SECONDS = 0.005

# When it was looked, by the machine's monotonic clock in nanoseconds, and how many jobs were under lease.
Looks = list[tuple[int, int]]


class Use(NamedTuple):
    """What one run found; shares are of the limit's places."""

    times_exceeded: int
    most_leased: int
    leased_share: float
    handler_share: float
    rate: float


def measure(run: Run) -> None:
    jobs = run.size(20_000, 2_000)
    found = [use(run.server, jobs) for _ in run.repeats(most=2)]
    run.state(f"times more than {LIMIT} handlers ran", "", [each.times_exceeded for each in found], at_most=0)
    run.state("most under lease at once", "", [each.most_leased for each in found], at_most=LIMIT)
    run.state("share of the places leased", "", [each.leased_share for each in found], at_least=0.9)
    run.state("share of the places running handlers", "", [each.handler_share for each in found])
    run.state("jobs completed", "jobs/s", [each.rate for each in found])
    run.note(f"{jobs:,} jobs of {JOB_SECONDS * 1000:g} ms, limit {LIMIT}, {WORKERS} workers with concurrency 16")


def use(server: Server, jobs: int) -> Use:
    """Enqueue so many jobs for workers that are warm, and watch them."""
    started, ended = (processes.Array("q", jobs, lock=False) for _ in range(2))
    rows = [{"place": place} for place in range(jobs)]
    with server.database() as url, connect(url) as connection, ExitStack() as stack:
        app, task = _declare(url, started, ended)
        with app:
            app.migrate()
            workers = [stack.enter_context(running(_work, url, started, ended)) for _ in range(WORKERS)]
            while connection.execute("select count(*) from penstock.worker").fetchone()[0] < WORKERS:
                time.sleep(0.02)
            task.enqueue_many(rows[:CALL])
            wait_for_completed(connection, CALL, workers)
            with watching(url) as looks:
                for low in range(0, jobs, CALL):
                    task.enqueue_many(rows[low : low + CALL])
                wait_for_completed(connection, CALL + jobs, workers)
    first, last = min(started), max(started)
    leased = [jobs_leased for at, jobs_leased in looks if first <= at <= last]
    busy = sum(ended) - sum(started)
    return Use(
        sum(running > LIMIT for running in _running_at_starts(list(started), list(ended))),
        max(leased),
        mean(leased) / LIMIT,
        busy / (LIMIT * (max(ended) - first)),
        jobs / (max(ended) - first) * 1e9,
    )


@contextmanager
def watching(url: str) -> Iterator[Looks]:
    """Look at the leases, again and again, as long as the block lasts."""
    looks: Looks = []
    is_over = threading.Event()

    def watch() -> None:
        with connect(url) as connection:
            while not is_over.wait(LOOK_SECONDS):
                leased = connection.execute(
                    "select coalesce(sum(penstock.members_count(low, high, members)), 0) from penstock.lease"
                ).fetchone()[0]
                looks.append((time.monotonic_ns(), int(leased)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield looks
    finally:
        is_over.set()
        watcher.join()


def _running_at_starts(started: list[int], ended: list[int]) -> Iterator[int]:
    """How many ran when each of them had started. What ends at the moment another starts has ended."""
    steps = sorted([(at, 1) for at in started] + [(at, -1) for at in ended])
    running_after = accumulate(step for _, step in steps)
    return (count for (_, step), count in zip(steps, running_after, strict=True) if step > 0)


def _declare(url: str, started: Any, ended: Any) -> tuple[App, Any]:
    app = App(url)

    def take_a_millisecond(place: int) -> None:
        started[place] = time.monotonic_ns()
        time.sleep(JOB_SECONDS)
        ended[place] = time.monotonic_ns()

    return app, app.queue(QUEUE, limit=LIMIT).task(take_a_millisecond)


def _work(url: str, started: Any, ended: Any) -> None:
    app, _ = _declare(url, started, ended)
    with app:
        app.work()
