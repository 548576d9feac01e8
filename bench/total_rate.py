"""A total_rate of 200 a second over 2 partitions, with 2 worker processes: how much of it is used while the work is now
in one partition and now in the other, is it ever passed, and what does it cost beside a rate of each partition?

The load shifts as in `total_limit`: a batch of jobs whose keys all go to one partition, then one for the other, each
enqueued when the one before is nearly done. What is measured are the starts a second from the first second on, when
the bucket has been emptied, and the most that started beyond rate * time from any instant on.

The cost is measured with jobs that take no time, at a rate that is never reached: the same queue with a `rate` of half
as many in each partition, and with a `total_rate`.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import NamedTuple

from bench.completion import completed, wait_for_completed
from bench.processes import running
from bench.run import Run
from bench.server import Server, connect
from bench.total_limit import PARTITIONS, WORKERS, declare, drain, keys_of_partitions, work

QUESTION = "How much of a total_rate is used while the load shifts, and what does it cost?"

RATE = 200
FAST = 100_000


class Paced(NamedTuple):
    """What one run with a load that shifts found."""

    used_share: float
    most_beyond: float


def measure(run: Run) -> None:
    shifts, seconds = run.size(8, 3), 3.0
    found = [shift(run.server, shifts, seconds) for _ in run.repeats(most=2)]
    run.state("most starts beyond rate * time", "", [each.most_beyond for each in found], at_most=2 * RATE)
    run.state("share of the rate used while the load shifts", "", [each.used_share for each in found], at_least=0.9)
    jobs = run.size(20_000, 2_000)
    rates: dict[str, list[float]] = {"total_rate": [], "rate": []}
    for _ in run.repeats():
        rates["total_rate"].append(drain(run.server, jobs, {"total_rate": f"{FAST}/s"}))
        rates["rate"].append(drain(run.server, jobs, {"rate": f"{FAST // PARTITIONS}/s"}))
    run.compare("jobs completed, total_rate", "jobs/s", rates["total_rate"], "rate", rates["rate"])
    run.note(f"total_rate {RATE}/s, {PARTITIONS} partitions, {WORKERS} workers with concurrency 16")
    run.note(f"{shifts} shifts of {seconds:g} s; then {jobs:,} jobs of no time at {FAST:,}/s, which is never reached")


def shift(server: Server, shifts: int, seconds: float) -> Paced:
    """Let the load shift from one partition to the other, and read when jobs started."""
    size = int(seconds * RATE)
    keys = keys_of_partitions()
    options = {"total_rate": f"{RATE}/s"}
    with server.database() as url, connect(url) as connection, ExitStack() as stack:
        app, task = declare(url, 0.0, options)
        with app:
            app.migrate()
            workers = [stack.enter_context(running(work, url, 0.0, options)) for _ in range(WORKERS)]
            for number in range(shifts):
                task.enqueue_many([{"key": keys[number % PARTITIONS]}] * size)
                while completed(connection) < (number + 1) * size - RATE // 10:
                    time.sleep(0.01)
            wait_for_completed(connection, shifts * size, workers)
        ends = connection.execute(
            "select extract(epoch from finished_at)::double precision, cardinality(positions) from penstock.finished"
            " order by 1"
        ).fetchall()
    return _pace(ends)


def _pace(ends: list[tuple[float, int]]) -> Paced:
    """By when jobs of no time ended, which is when they started."""
    first, last = ends[0][0], ends[-1][0]
    steady = sum(count for at, count in ends if at > first + 1.0)
    beyond = most = 0.0
    before = first
    for at, count in ends:
        beyond = max(beyond - (at - before) * RATE, 0.0) + count
        most, before = max(most, beyond), at
    return Paced(steady / RATE / (last - first - 1.0), most)
