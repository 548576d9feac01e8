"""One key that has all the jobs: taken in runs of 100, against the same jobs spread over 1,000 keys, and against the
same key one job at a time. Enqueued in calls of 1,000, and one by one; everything is enqueued before the worker starts,
and the rate counts from the first tenth until the last.

One job at a time is stated beside a bare loop of "update a row, commit" on one connection: what a turn of one job adds
to the commit that it needs.

What others wait for: while the hot key is worked off, jobs of other keys come in, one every 20 ms; handlers take 1 ms,
16 slots. The time from enqueue to start, against the same without the hot key.
"""

from __future__ import annotations

import time
from typing import Any

from bench.completion import history, rate_between, wait_for_completed
from bench.processes import running, work
from bench.run import Run
from bench.server import Connection, Server, connect
from bench.workload import ARGUMENTS, declare

QUESTION = "How fast is a key that has all the jobs, and do others wait for it?"

RUN = 100
KEYS = 1_000
CALL = 1_000
HANDLER_SECONDS = 0.001
EVERY_SECONDS = 0.02
ORDERED: dict[str, Any] = {"key": "customer_id", "order": "key"}
WAITS = """
select percentile_cont(0.5) within group (order by waited) from (
    select extract(epoch from f.started_at - j.enqueued_at)::double precision * 1000 as waited
      from penstock.finished_job as f join penstock.job as j on j.id = f.job_id where j.key <> 'hot'::bytea) as w
"""


def measure(run: Run) -> None:
    jobs, few = run.size(50_000, 5_000), run.size(3_000, 300)
    hot: dict[int, list[float]] = {CALL: [], 1: []}
    spread: dict[int, list[float]] = {CALL: [], 1: []}
    strict, bare, beside, alone = [], [], [], []
    for _ in run.repeats():
        for size in (CALL, 1):
            count = jobs if size > 1 else jobs // 5
            hot[size].append(drain(run.server, count, size, 1, RUN))
            spread[size].append(drain(run.server, count, size, KEYS, RUN))
        strict.append(drain(run.server, few, CALL, 1, 1))
        bare.append(updates(run.server, few))
        waited = [waits(run.server, run.size(20_000, 2_000), is_hot=is_hot) for is_hot in (True, False)]
        beside.append(waited[0])
        alone.append(waited[1])
    for size, name in ((CALL, "in bulk"), (1, "one by one")):
        run.compare(
            f"one key, run={RUN}, enqueued {name}", "jobs/s", hot[size], f"{KEYS:,} keys", spread[size], at_least=0.5
        )
    run.compare(f"one key, run={RUN}", "jobs/s", hot[CALL], "one key, run=1", strict, at_least=20)
    run.compare("one key, run=1", "jobs/s", strict, "update a row, commit", bare, at_least=0.25)
    run.compare("wait of other keys, median", "ms", beside, "without the hot one", alone, at_most=1.2)
    run.note(f"{jobs:,} jobs, a fifth one by one, {few:,} with run=1; 1 worker, 16 slots, a handler that does nothing")


def drain(server: Server, jobs: int, size: int, keys: int, longest: int) -> float:
    """Jobs a second of a worker that finds all of them waiting."""
    options = {**ORDERED, "run": longest}
    size = min(size, jobs)
    rows = [{**ARGUMENTS[number], "customer_id": f"customer-{number % keys}"} for number in range(CALL)]
    with server.database() as url, connect(url) as connection:
        app, task = declare(url, **options)
        with app:
            for number in range(jobs // size):
                if size == 1:
                    task.enqueue(**rows[number % CALL])
                else:
                    task.enqueue_many(rows[:size])
        with running(work, url, 16, "bench", options) as worker:
            wait_for_completed(connection, jobs, [worker])
        return rate_between(history(connection), jobs // 10, jobs)


def updates(server: Server, count: int) -> float:
    """Commits a second of a loop that updates a row."""
    with server.database() as url, connect(url) as connection:
        connection.execute("create table counted (n int)")
        connection.execute("insert into counted values (0)")
        began = time.perf_counter()
        for _ in range(count):
            connection.execute("update counted set n = n + 1")
        return count / (time.perf_counter() - began)


def waits(server: Server, jobs: int, *, is_hot: bool) -> float:
    """The median of what jobs of other keys wait for, while the hot one is worked off, or as long without it."""
    options = {**ORDERED, "run": RUN, "call_seconds": HANDLER_SECONDS}
    seconds = jobs * HANDLER_SECONDS / 2
    with server.database() as url, connect(url) as connection:
        app, task = declare(url, **options)
        with app:
            if is_hot:
                rows = [{**row, "customer_id": "hot"} for row in ARGUMENTS[:CALL]]
                for _ in range(jobs // CALL):
                    task.enqueue_many(rows)
            with running(work, url, 16, "bench", options) as worker:
                _wait_for_worker(connection)
                others = int(seconds / EVERY_SECONDS)
                began = time.perf_counter()
                for number in range(others):
                    task.enqueue(**ARGUMENTS[number])
                    time.sleep(max(began + number * EVERY_SECONDS - time.perf_counter(), 0))
                wait_for_completed(connection, others + (jobs if is_hot else 0), [worker])
        return float(connection.execute(WAITS).fetchone()[0])


def _wait_for_worker(connection: Connection) -> None:
    while not connection.execute("select count(*) from penstock.worker").fetchone()[0]:
        time.sleep(0.05)
    time.sleep(0.5)
