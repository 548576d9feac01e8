"""Bulk enqueue: `enqueue_many` of 1,000 dicts, one call after the other in one process, to durable jobs that a worker
could claim; against raw COPY of the same rows.
"""

from __future__ import annotations

import time

from bench import raw_copy
from bench.processes import WARM_UP_CALLS
from bench.raw_copy import CALL
from bench.run import Run
from bench.server import Server, connect, wal_position
from bench.workload import ARGUMENT_BYTES, calls_of, declare

QUESTION = "How many jobs a second does enqueue_many write, against writing the rows alone?"


def measure(run: Run) -> None:
    jobs = run.size(300_000, 30_000)
    enqueued, wal, copied, ready = [], [], [], []
    for _ in run.repeats():
        copied.append(raw_copy.from_dicts(run.server, jobs))
        rate, wal_bytes = bulk_enqueue(run.server, jobs)
        enqueued.append(rate)
        wal.append(wal_bytes)
        ready.append(raw_copy.from_bytes(run.server, jobs))
    run.compare("enqueue_many of 1,000", "jobs/s", enqueued, "raw COPY from dicts", copied, at_least=0.7)
    run.compare("enqueue_many of 1,000", "jobs/s", enqueued, "raw COPY of ready-made bytes", ready)
    run.state("WAL a job", "bytes", wal)
    run.note(f"{jobs:,} jobs, {ARGUMENT_BYTES:.0f} bytes of arguments on average, no worker at work")


def bulk_enqueue(server: Server, jobs: int) -> tuple[float, float]:
    """Jobs a second, and bytes of WAL a job."""
    calls = calls_of(CALL)
    with server.database() as url, connect(url) as connection:
        app, task = declare(url)
        with app:
            for call in calls[:WARM_UP_CALLS]:
                task.enqueue_many(call)
            wal_before, began = wal_position(connection), time.perf_counter()
            for number in range(jobs // CALL):
                task.enqueue_many(calls[number % len(calls)])
            seconds = time.perf_counter() - began
            written = connection.execute("select sum(enqueued) from penstock.depth").fetchone()[0]
            assert written == jobs + WARM_UP_CALLS * CALL
            return jobs / seconds, (wal_position(connection) - wal_before) / jobs
