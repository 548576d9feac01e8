"""Spark as workers: a queue drained by `ps.process` on two cores, with a batch handler that does nothing, against two
worker processes with a handler that does nothing. Jobs wait beforehand; the rate is that between a tenth and nine
tenths of them, from the history, so that starting a job of Spark or a process is on neither side. What the whole call
takes, start and idle end included, is stated beside it. The same for a queue with order per key.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

import penstock.spark as ps
from bench.completion import history, rate_between, wait_for_completed
from bench.processes import running, work
from bench.run import Run
from bench.server import Server, connect
from bench.workload import ARGUMENTS, QUEUE, declare
from penstock.spark.processing.row_outcome import Outcome

QUESTION = "How fast do Spark's executors run jobs, against plain workers?"

CORES = 2
CONCURRENCY = 16
CALL = 1_000
ORDERED: dict[str, Any] = {"key": "customer_id", "partitions": 4, "order": "key"}


def measure(run: Run) -> None:
    plain_jobs, ordered_jobs = run.size(400_000, 40_000), run.size(200_000, 20_000)
    spark = ps.session(f"local[{CORES}]")
    sides = {"plain": ({}, plain_jobs), "ordered": (ORDERED, ordered_jobs)}
    slots: dict[str, list[float]] = {kind: [] for kind in sides}
    calls: dict[str, list[float]] = {kind: [] for kind in sides}
    workers: dict[str, list[float]] = {kind: [] for kind in sides}
    # The first job of Spark starts its Python processes.
    _by_spark(run.server, spark, 10 * CALL, {})
    for _ in run.repeats():
        for kind, (options, jobs) in sides.items():
            rate, whole = _by_spark(run.server, spark, jobs, options)
            slots[kind].append(rate)
            calls[kind].append(whole)
            workers[kind].append(_by_workers(run.server, jobs, options))
    run.compare("ps.process", "jobs/s", slots["plain"], f"{CORES} workers", workers["plain"], at_least=0.7)
    run.compare("ps.process, order per key", "jobs/s", slots["ordered"], f"{CORES} workers", workers["ordered"])
    run.compare("ps.process, the whole call", "jobs/s", calls["plain"], f"{CORES} workers", workers["plain"])
    run.note(f"local[{CORES}], {plain_jobs:,} jobs, {ordered_jobs:,} with order per key in 4 partitions")
    spark.stop()


def _by_spark(server: Server, spark: Any, jobs: int, options: dict[str, Any]) -> tuple[float, float]:
    """Jobs a second between a tenth and nine tenths, and of the whole call."""

    def do_nothing(batch: pa.RecordBatch) -> list[Outcome]:
        return [ps.Ok()] * batch.num_rows

    with server.database() as url, connect(url) as connection:
        app = _fill(url, jobs, options)
        began = time.perf_counter()
        done = ps.process(spark, app, QUEUE, do_nothing)
        seconds = time.perf_counter() - began
        app.close()
        if done.succeeded != jobs:
            raise RuntimeError(f"{done.succeeded} of {jobs} jobs were processed")
        return rate_between(history(connection), jobs // 10, jobs * 9 // 10), jobs / seconds


def _by_workers(server: Server, jobs: int, options: dict[str, Any]) -> float:
    with server.database() as url, connect(url) as connection, ExitStack() as stack:
        _fill(url, jobs, options).close()
        started = [stack.enter_context(running(work, url, CONCURRENCY, QUEUE, options)) for _ in range(CORES)]
        wait_for_completed(connection, jobs, started)
        return rate_between(history(connection), jobs // 10, jobs * 9 // 10)


def _fill(url: str, jobs: int, options: dict[str, Any]) -> Any:
    app, task = declare(url, **options)
    for low in range(0, jobs, CALL):
        start = low % len(ARGUMENTS)
        task.enqueue_many(ARGUMENTS[start : start + CALL])
    return app
