"""What a worker costs: a plain queue is filled first, then one process with a handler that only looks at its arguments
drains it. Beside it, in turns, the same of the commit before the worker was looked at, and bare Python: a loop that
decodes the same arguments, calls the same handler with them and reads the clock before and after.

Jobs a second of the clock depend on what else the machine does, and on the server; jobs for each second of the worker's
own CPU do not.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.commits import commit_of, in_worktree, run_in
from bench.completion import history, rate_between
from bench.processes import processes
from bench.run import Run
from bench.server import connect, started_server
from bench.workload import ARGUMENTS, declare

QUESTION = "What does a worker cost, where the handler does nothing?"

BEFORE = "736f158"
CALL = 1_000
CONCURRENCY = 16
HERE = Path(__file__).parents[1]


class Drained(NamedTuple):
    """Jobs a second, of the clock and of the worker's CPU."""

    rate: float
    cpu_rate: float


def measure(run: Run) -> None:
    jobs = run.size(300_000, 30_000)
    before: list[Drained] = []
    now: list[Drained] = []
    bare: list[float] = []
    with in_worktree(HERE, commit_of(HERE, BEFORE)) as earlier:
        for number in run.repeats():
            sides = [(earlier, before), (HERE, now)]
            for worktree, found in sides if number % 2 else reversed(sides):
                found.append(_drain_of(worktree, jobs))
            bare.append(run_bare(jobs))
    name, against = "1 worker drains", f"{BEFORE} drains"
    run.compare(name, "jobs/s", [each.rate for each in now], against, [each.rate for each in before], at_least=1.3)
    name, against = "for each second of the worker's CPU", f"for each of {BEFORE}"
    cpu_rates = [each.cpu_rate for each in now]
    run.compare(name, "jobs/s", cpu_rates, against, [each.cpu_rate for each in before], at_least=1.3)
    run.compare(name, "jobs/s", cpu_rates, "decode, call and clock alone", bare)
    run.note(f"{jobs:,} jobs, enqueued before; {CONCURRENCY} slots, a handler that looks at its arguments")


def run_bare(jobs: int) -> float:
    """Jobs for each second of CPU that Python needs to decode, call and read the clock."""
    decode, clock = msgspec.json.Decoder().decode, time.perf_counter_ns
    encoded = [msgspec.json.encode(each).decode() for each in ARGUMENTS]
    began = time.process_time()
    for number in range(jobs):
        clock()
        look_at(**decode(encoded[number % len(encoded)]))
        clock()
    return jobs / (time.process_time() - began)


def look_at(customer_id: str, amount: float, currency: str, reference: str, is_express: bool) -> None:
    """The handler."""
    if amount < 0 or not customer_id or not reference:
        raise ValueError(currency)


def drain(jobs: int) -> Drained:
    """Fill a queue and drain it, with the Penstock that this process has."""
    with started_server() as server, server.database() as url:
        app, task = declare(url, handler=look_at)
        with app:
            for low in range(0, jobs, CALL):
                first = low % len(ARGUMENTS)
                task.enqueue_many(ARGUMENTS[first : first + CALL])
        seconds = processes.SimpleQueue()
        worker = processes.Process(target=_work, args=(url, seconds))
        worker.start()
        cpu_seconds = seconds.get()
        worker.join()
        with connect(url) as connection:
            return Drained(rate_between(history(connection), jobs // 10, jobs), jobs / cpu_seconds)


def _work(url: str, seconds: Any) -> None:
    app, _ = declare(url, handler=look_at)
    with app:
        began = time.process_time()
        app.work(concurrency=CONCURRENCY, until_idle=True)
        seconds.put(time.process_time() - began)


def _drain_of(worktree: Path, jobs: int) -> Drained:
    """The same with the Penstock of a worktree, measured by this file."""
    command = [sys.executable, "-m", "bench.worker_cost", str(jobs)]
    ended = run_in("bench worker_cost", command, HERE, [worktree / "src", HERE])
    return Drained(*json.loads(ended.splitlines()[-1]))


if __name__ == "__main__":
    print(json.dumps(drain(int(sys.argv[1]))))
