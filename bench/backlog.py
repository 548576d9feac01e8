"""The drain rate behind a large backlog against a small one, once enqueued in calls of 1,000 and once one by one.

A worker process is started, drains some thousand jobs and is stopped; the backlog is filled up again; and so on, the
same for both. What counts is a fixed number of jobs in the middle of each pass, timed by the history that the worker
wrote. Filling up two million jobs one by one would take half an hour, so one statement writes for many jobs exactly the
rows that `enqueue` writes for each: the job with its token in a range of its own, the ready row, the row of the tally.
After filling, the tally is folded and the tables vacuumed, as upkeep and autovacuum do in life.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.completion import completed, history, rate_between, wait_for_completed
from bench.processes import running, work
from bench.run import Run
from bench.server import Connection, Server, connect
from bench.workload import TASK, calls_of, declare
from penstock.storage.upkeep.sweep import fold

QUESTION = "Does a worker drain slower when two million jobs wait?"

CALL = 1_000
SMALL = 20_000
# Of each pass: drained before the clock starts, and while it runs.
WARM_UP = 4_000
COUNTED = 12_000
FILL_CHUNK = 10_000
TABLES = ("job", "ready", "tally", "total")

Fill = Callable[[Connection, Any, int], None]


def measure(run: Run) -> None:
    large = run.size(2_000_000, 100_000)
    passes = run.size(5, 2)
    kinds: tuple[tuple[str, Fill, float], ...] = (
        ("in calls of 1,000", _fill_in_calls, 0.85),
        ("one by one", _fill_one_by_one, 0.75),
    )
    for name, fill, bar in kinds:
        rates: dict[int, list[float]] = {SMALL: [], large: []}
        for _ in run.repeats():
            for backlog in rates:
                run.say(f"  {backlog:,} enqueued {name}")
                rates[backlog] += drain(run.server, backlog, fill, passes)
        run.compare(f"drain, {large:,} {name}", "jobs/s", rates[large], f"{SMALL:,}", rates[SMALL], at_least=bar)
    run.note(f"{passes} passes a repeat with 1 worker; {COUNTED:,} jobs counted a pass")
    run.note("one by one: the rows of single enqueues, written by one statement for many jobs")


def drain(server: Server, backlog: int, fill: Fill, passes: int) -> list[float]:
    """The rate of each pass, the backlog being as given at the start of each."""
    rates = []
    with server.database() as url, connect(url) as connection:
        app, task = declare(url)
        with app:
            app.migrate()
            for _ in range(passes):
                done = completed(connection)
                waiting = int(connection.execute("select coalesce(sum(opened), 0) from penstock.depth").fetchone()[0])
                fill(connection, task, backlog - waiting)
                settle_down(connection)
                first, last = done + WARM_UP, done + WARM_UP + COUNTED
                with running(work, url) as worker:
                    wait_for_completed(connection, last, [worker])
                rates.append(rate_between(history(connection), first, last))
    return rates


def _fill_in_calls(connection: Connection, task: Any, count: int) -> None:
    calls = calls_of(CALL)
    for number in range(count // CALL):
        task.enqueue_many(calls[number % len(calls)])


def _fill_one_by_one(connection: Connection, task: Any, count: int) -> None:
    partition = connection.execute("select id from penstock.partition").fetchone()[0]
    rows = calls_of(1)
    for low in range(0, count, FILL_CHUNK):
        size = min(FILL_CHUNK, count - low)
        args = [task.definition.arguments.encode(rows[number % len(rows)][0]).decode() for number in range(size)]
        ranges = [
            row[0]
            for row in connection.execute("select penstock.draw_range() from generate_series(1, %s)", [size]).fetchall()
        ]
        connection.execute(
            """
            with given as materialized (
                select * from unnest(%(ranges)s::bigint[], %(args)s::text[]) as g(range, args)
            ), jobs as (
                insert into penstock.job (id, enqueued_at, partition_id, priority, task, args, attributes)
                select range * 1024, clock_timestamp(), %(partition)s, 5, %(task)s, args::json,
                       jsonb_build_object('token', (random() * 9e18)::bigint)
                  from given
            ), tallied as (
                insert into penstock.tally (partition_id, enqueued, opened) select %(partition)s, 1, 1 from given
            )
            insert into penstock.ready (partition_id, priority, pos, range, low, high, task)
            select %(partition)s, 5, range, range, 0, 1, %(task)s from given
            """,
            {"ranges": ranges, "args": args, "partition": partition, "task": TASK},
        )


def settle_down(connection: Connection) -> None:
    """As upkeep and autovacuum leave it."""
    fold(connection)
    for table in TABLES:
        connection.execute(f"vacuum (analyze) penstock.{table}")
    connection.execute("checkpoint")
