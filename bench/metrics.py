"""What a scrape costs: the text of a whole system of a thousand partitions, read anew and not from the second's cache,
with jobs waiting in each of them, some under leases, and workers that live. Beside it, in turns, what the same figures
take as a person reads them. And a worker drains a queue without and with figures of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any

from bench.processes import processes
from bench.run import Run
from bench.server import Server, connect
from bench.worker_cost import CALL, CONCURRENCY, look_at
from bench.workload import ARGUMENTS, TASK, declare
from penstock import App
from penstock.metrics import system_metrics
from penstock.model.queue import QueueDefinition
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import announce_task, declare_queue
from penstock.storage.work.workers import register

QUESTION = "What does it cost to be scraped?"

WORKERS = 8
JOBS_A_PARTITION = 20
SCRAPES = 20

_FILL = """
with given as materialized (
    select penstock.draw_range() as range, p.id as partition, n
      from penstock.partition as p cross join generate_series(1, %(each)s) as n
), jobs as (
    insert into penstock.job (id, enqueued_at, partition_id, priority, task, args)
    select range * 1024, clock_timestamp(), partition, 2 + n %% 3, %(task)s, '{}' from given
), tallied as (
    insert into penstock.tally (partition_id, enqueued, opened) select partition, 1, 1 from given
)
insert into penstock.ready (partition_id, priority, pos, range, low, high, task)
select partition, 2 + n %% 3, range, range, 0, 1, %(task)s from given
"""
_LEASE = """
insert into penstock.lease (token, worker_id, partition_id, priority, pos, range, low, high, attempt, rescues,
                            is_ahead, ready_at, task)
select 1, %(worker)s, id, 5, 1, id, 0, 1, 1, 0, false, now(), %(task)s from penstock.partition
"""


def measure(run: Run) -> None:
    partitions = run.size(1_000, 100)
    with ExitStack() as opened:
        # All of one queue is at most 1,000; or as many queues.
        one = opened.enter_context(_filled(run, 1, partitions))
        many = opened.enter_context(_filled(run, partitions, 1))
        for name, app in (("1 queue", one), (f"{partitions:,} queues", many)):
            scraped: list[float] = []
            asked: list[float] = []
            text = b""
            for _ in run.repeats():
                scraped.append(_milliseconds(lambda app=app: system_metrics(app.databases)))
                asked.append(_milliseconds(app.queues))
                text = system_metrics(app.databases)
            named = f"a scrape, {partitions:,} partitions of {name}"
            run.state(named, "ms", scraped, at_most=50)
            run.compare(named, "ms", scraped, "app.queues()", asked)
            run.state(f"text, {partitions:,} partitions of {name}", "kB", [len(text) / 1e3])
    _measure_worker(run)
    run.note(
        f"{JOBS_A_PARTITION} jobs wait in each partition in 3 priorities, 1 is leased; {WORKERS} workers; medians of"
        f" {SCRAPES}"
    )


def _measure_worker(run: Run) -> None:
    """Jobs for each second of a worker's CPU, with and without figures."""
    jobs = run.size(300_000, 20_000)
    without: list[float] = []
    with_figures: list[float] = []
    for number in run.repeats():
        sides = [(False, without), (True, with_figures)]
        for has_figures, found in sides if number % 2 else reversed(sides):
            found.append(_drain(run.server, jobs, has_figures=has_figures))
    run.compare(
        "a worker with figures, for each second of its CPU", "jobs/s", with_figures, "without", without, at_least=0.9
    )


def _drain(server: Server, jobs: int, *, has_figures: bool) -> float:
    with server.database() as url:
        app, task = declare(url, handler=look_at)
        with app:
            for low in range(0, jobs, CALL):
                first = low % len(ARGUMENTS)
                task.enqueue_many(ARGUMENTS[first : first + CALL])
        seconds = processes.SimpleQueue()
        worker = processes.Process(target=_work, args=(url, has_figures, seconds))
        worker.start()
        taken: float = seconds.get()
        worker.join()
        return jobs / taken


def _work(url: str, has_figures: bool, seconds: Any) -> None:
    app, _ = declare(url, handler=look_at)
    app.working.has_figures = has_figures
    with app:
        began = time.process_time()
        app.work(concurrency=CONCURRENCY, until_idle=True)
        seconds.put(time.process_time() - began)


def _milliseconds(act: Callable[[], object]) -> float:
    taken = []
    for _ in range(SCRAPES):
        began = time.perf_counter()
        act()
        taken.append(1e3 * (time.perf_counter() - began))
    return median(taken)


class _Filled:
    """An app on a database of its own, with so many queues of so many partitions in which jobs wait."""

    def __init__(self, run: Run, queues: int, partitions: int) -> None:
        self._opened = ExitStack()
        self._url = self._opened.enter_context(run.server.database())
        with Database(self._url).connect() as connection:
            numbers = [
                declare_queue(
                    connection, QueueDefinition.of(f"queue-{number:04}", partitions, limit=10, max_length=1_000)
                ).id
                for number in range(queues)
            ]
            self._fill(connection, numbers)

    def __enter__(self) -> App:
        return self._opened.enter_context(App(self._url))

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _fill(self, connection: Connection, queues: list[int]) -> None:
        for queue in queues:
            announce_task(connection, queue, TASK, 5)
        workers = [
            register(
                connection, name="bench", host="here", pid=1, version="0", concurrency=16, lease_seconds=36_000.0,
                tasks=[(queue, TASK) for queue in queues],
            )
            for _ in range(WORKERS)
        ]  # fmt: skip
        with connect(self._url) as plain:
            plain.execute(_FILL, {"each": JOBS_A_PARTITION, "task": TASK})
            plain.execute(_LEASE, {"worker": workers[0], "task": TASK})
            plain.execute("select penstock.fold()")
            plain.execute("vacuum (analyze)")


def _filled(run: Run, queues: int, partitions: int) -> _Filled:
    run.say(f"  {queues:,} queues with {queues * partitions:,} partitions")
    return _Filled(run, queues, partitions)
