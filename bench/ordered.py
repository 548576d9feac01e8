"""Order per key: whole cycles, as `cycle` measures them, of a queue whose jobs run one at a time for each of 10,000
keys in 4 partitions. Against a plain queue without keys, in one partition, so that the ratio holds everything that
order costs; and against a plain queue with the same keys and partitions, which has no order and nothing else less.

Draining alone: everything is enqueued before the one worker starts, and the rate counts from the first tenth until the
last. That is where a worker's own time shows most, and so what an ordered turn does more.
"""

from __future__ import annotations

from typing import Any

from bench.completion import history, rate_between, wait_for_completed
from bench.cycle import CONCURRENCY, cycle
from bench.processes import running, work
from bench.raw_copy import CALL
from bench.run import Run
from bench.server import Server, connect
from bench.workload import ARGUMENTS, QUEUE, calls_of, declare

QUESTION = "What does order per key cost, against a plain queue?"

KEYED: dict[str, Any] = {"key": "customer_id", "partitions": 4}
KINDS: dict[str, dict[str, Any]] = {"ordered": {**KEYED, "order": "key"}, "keyed": KEYED, "plain": {}}


def measure(run: Run) -> None:
    jobs = run.size(100_000, 10_000)
    found: dict[tuple[str, int], list[float]] = {
        ("ordered", 1): [],
        ("plain", 1): [],
        ("keyed", 1): [],
        ("ordered", 2): [],
        ("plain", 2): [],
    }
    wal: dict[str, list[float]] = {kind: [] for kind in KINDS}
    drained: dict[str, list[float]] = {"ordered": [], "keyed": []}
    for _ in run.repeats():
        for kind, rates in drained.items():
            rates.append(drain(run.server, jobs, **KINDS[kind]))
        for (kind, workers), rates in found.items():
            one = cycle(run.server, jobs, workers, **KINDS[kind])
            rates.append(one.rate)
            if workers == 1:
                wal[kind].append(one.wal_bytes_a_job)
    plain, one, two = found["plain", 1], found["ordered", 1], found["ordered", 2]
    run.compare("ordered, 1 worker", "jobs/s", one, "plain, 1 worker", plain, at_least=0.5)
    alike = "plain, the same keys and partitions"
    run.compare("ordered, 1 worker", "jobs/s", one, alike, found["keyed", 1], at_least=0.8)
    run.compare("ordered, draining alone", "jobs/s", drained["ordered"], alike, drained["keyed"], at_least=0.7)
    run.compare("ordered, 2 workers", "jobs/s", two, "plain, 2 workers", found["plain", 2])
    run.compare("WAL a job, ordered, 1 worker", "bytes", wal["ordered"], "plain", wal["plain"])
    run.note(f"{jobs:,} jobs in calls of 1,000, {len(ARGUMENTS):,} keys, 4 partitions; the bars are for 1 worker")


def drain(server: Server, jobs: int, **options: Any) -> float:
    """Jobs a second of a worker that finds all of them waiting."""
    rows = calls_of(CALL)
    with server.database() as url, connect(url) as connection:
        app, task = declare(url, **options)
        with app:
            for number in range(jobs // CALL):
                task.enqueue_many(rows[number % len(rows)])
        with running(work, url, CONCURRENCY, QUEUE, options) as worker:
            wait_for_completed(connection, jobs, [worker])
        return rate_between(history(connection), jobs // 10, jobs)
