"""The drain rate behind a large backlog against a small one, once enqueued in calls of 1,000 and once one by one.

A worker process is started, drains some thousand jobs and is stopped; the backlog is filled up again; and so on, the
same for both. What counts is a fixed number of jobs in the middle of each pass, timed by the history that the worker
wrote. Filling up two million jobs one by one would take half an hour, so one statement writes for many jobs exactly the
rows that `enqueue` writes for each: the job with its token in a range of its own, the ready row, the row of the tally.
After filling, the tally is folded and the tables vacuumed, as upkeep and autovacuum do in life.

What single acts take is compared in `backlog_acts`.
"""

from __future__ import annotations

from typing import Any

from bench.backlog_acts import SMALL, Fill, fill_one_by_one, measure_acts, settle_down
from bench.completion import completed, history, rate_between, wait_for_completed
from bench.processes import running, work
from bench.run import Run
from bench.server import Connection, Server, connect
from bench.workload import calls_of, declare

QUESTION = "Does a worker drain slower when two million jobs wait, and does anything take longer when ten million do?"

CALL = 1_000
# Of each pass: drained before the clock starts, and while it runs.
WARM_UP = 4_000
COUNTED = 12_000


def measure(run: Run) -> None:
    measure_drain(run)
    measure_acts(run)


def measure_drain(run: Run) -> None:
    """Compare the rates."""
    large = run.size(2_000_000, 100_000)
    passes = run.size(5, 2)
    kinds: tuple[tuple[str, Fill, float], ...] = (
        ("in calls of 1,000", _fill_in_calls, 0.85),
        ("one by one", fill_one_by_one, 0.75),
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
