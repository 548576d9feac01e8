"""A total_limit of 8 over 2 partitions, with 2 worker processes and jobs of 20 ms: are its permits used while the work
is now in one partition and now in the other, and what does it cost beside a limit of each partition?

The load shifts: a batch of jobs whose keys all go to one partition, then one for the other, each enqueued when the one
before is nearly done, as soon as fewer jobs are left of it than may run. What is measured is the share of the permits
under lease, asked of the database some hundred times a second, from the first start to the last.

The cost is measured with jobs that take no time and work in both partitions all the time: the same queue with a
`limit` of half as many in each partition, and with a `total_limit`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import mean
from typing import Any, NamedTuple

from bench.completion import completed, wait_for_completed
from bench.limit_slots import watching
from bench.processes import running
from bench.run import Run
from bench.server import Server, connect
from bench.workload import QUEUE
from penstock import App
from penstock.routing.key_hash import partition_of

QUESTION = "Are the permits of a total_limit used while the load shifts, and what do they cost?"

TOTAL = 8
PARTITIONS = 2
WORKERS = 2
JOB_SECONDS = 0.02


class Shifted(NamedTuple):
    """What one run with a load that shifts found."""

    most_leased: int
    leased_share: float


def measure(run: Run) -> None:
    shifts, seconds = run.size(8, 3), 3.0
    found = [shift(run.server, shifts, seconds) for _ in run.repeats(most=2)]
    run.state("most under lease at once", "", [each.most_leased for each in found], at_most=TOTAL)
    run.state(
        "share of the permits leased while the load shifts", "", [each.leased_share for each in found], at_least=0.9
    )
    jobs = run.size(20_000, 2_000)
    rates: dict[str, list[float]] = {"total_limit": [], "limit": []}
    for _ in run.repeats():
        rates["total_limit"].append(drain(run.server, jobs, {"total_limit": TOTAL}))
        rates["limit"].append(drain(run.server, jobs, {"limit": TOTAL // PARTITIONS}))
    run.compare("jobs completed, total_limit", "jobs/s", rates["total_limit"], "limit", rates["limit"])
    run.note(f"total_limit {TOTAL}, {PARTITIONS} partitions, {WORKERS} workers with concurrency 16")
    run.note(f"{shifts} shifts, {seconds:g} s of jobs of {JOB_SECONDS * 1000:g} ms each; then {jobs:,} jobs of no time")


def shift(server: Server, shifts: int, seconds: float) -> Shifted:
    """Let the load shift from one partition to the other, and watch the leases."""
    size = int(seconds * TOTAL / JOB_SECONDS)
    keys = keys_of_partitions()
    options = {"total_limit": TOTAL}
    with server.database() as url, connect(url) as connection, ExitStack() as stack:
        app, task = declare(url, JOB_SECONDS, options)
        with app:
            app.migrate()
            workers = [stack.enter_context(running(work, url, JOB_SECONDS, options)) for _ in range(WORKERS)]
            task.enqueue_many([{"key": keys[n % PARTITIONS]} for n in range(64)])
            wait_for_completed(connection, 64, workers)
            began = time.monotonic_ns()
            with watching(url) as looks:
                for number in range(shifts):
                    task.enqueue_many([{"key": keys[number % PARTITIONS]}] * size)
                    while completed(connection) < 64 + (number + 1) * size - TOTAL:
                        time.sleep(0.01)
            leased = [count for at, count in looks if at >= began]
    first = next(index for index, count in enumerate(leased) if count)
    return Shifted(max(leased), mean(leased[first:]) / TOTAL)


def drain(server: Server, jobs: int, options: dict[str, Any]) -> float:
    """How many jobs of no time are completed in a second, in both partitions."""
    keys = keys_of_partitions()
    with server.database() as url, connect(url) as connection, ExitStack() as stack:
        app, task = declare(url, 0.0, options)
        with app:
            app.migrate()
            workers = [stack.enter_context(running(work, url, 0.0, options)) for _ in range(WORKERS)]
            task.enqueue_many([{"key": keys[n % PARTITIONS]} for n in range(1_000)])
            wait_for_completed(connection, 1_000, workers)
            began = time.monotonic()
            for low in range(0, jobs, 1_000):
                task.enqueue_many([{"key": keys[n % PARTITIONS]} for n in range(low, low + 1_000)])
            wait_for_completed(connection, 1_000 + jobs, workers)
            return jobs / (time.monotonic() - began)


def keys_of_partitions() -> Sequence[str]:
    """One key for each partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < PARTITIONS:
        found.setdefault(partition_of(str(number).encode(), PARTITIONS), str(number))
        number += 1
    return [found[partition] for partition in range(PARTITIONS)]


def declare(url: str, job_seconds: float, options: dict[str, Any]) -> tuple[App, Any]:
    app = App(url)

    def take_time(key: str) -> None:
        if job_seconds:
            time.sleep(job_seconds)

    return app, app.queue(QUEUE, partitions=PARTITIONS, **options).task(key="key")(take_time)


def work(url: str, job_seconds: float, options: dict[str, Any]) -> None:
    app, _ = declare(url, job_seconds, options)
    with app:
        app.work()
