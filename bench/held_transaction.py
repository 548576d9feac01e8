"""The cycle while another transaction stays open, as a report or a forgotten session does: it holds a snapshot and a
transaction number, so that nothing that dies meanwhile can be cleaned away. Enqueued in calls of 1,000, then one by one
(four threads calling `enqueue`).

The producer keeps at most 20,000 jobs ahead of what is completed, so that the cycle is steady; the rate is taken from
the history, in windows. Flat means: the last window is as fast as the first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import psycopg

from bench.completion import completed, history
from bench.processes import Gate, Pace, produce_at_pace, running, work
from bench.run import Run
from bench.server import Server, connect

QUESTION = "What does a transaction that is held open cost the cycle?"

WINDOWS = 6
MOST_AHEAD = 20_000
KINDS = (("in calls of 1,000", 1_000, 1), ("one by one", 1, 4))


def measure(run: Run) -> None:
    window_seconds = run.size(10_000, 1_500) / 1_000
    for name, size, threads in KINDS:
        free: list[float] = []
        held: list[float] = []
        first: list[float] = []
        last: list[float] = []
        for _ in run.repeats(most=1):
            without = steady_cycle(run.server, size, threads, window_seconds, is_held=False)
            under = steady_cycle(run.server, size, threads, window_seconds, is_held=True)
            free += without
            held += under
            first.append(under[0])
            last.append(under[-1])
            for label, windows in (("without", without), ("with it held", under)):
                run.note(f"{name}, {label}, window by window: {', '.join(f'{rate:,.0f}' for rate in windows)} jobs/s")
        run.compare(f"cycle {name}, held", "jobs/s", held, "without", free, at_least=0.85)
        run.compare(f"cycle {name}, held, last window", "jobs/s", last, "first window", first, at_least=0.85)
    run.note(f"{WINDOWS} windows of {window_seconds:g} s each, 1 worker; the windows stand for repeats")


def steady_cycle(server: Server, size: int, threads: int, window_seconds: float, *, is_held: bool) -> list[float]:
    """Jobs completed a second, window by window."""
    gate, pace = Gate(), Pace(MOST_AHEAD)
    with server.database() as url, connect(url) as connection, running(work, url) as worker:
        with running(produce_at_pace, url, gate, pace, size, threads) as producer:
            gate.wait_for(1)
            gate.open()
            # Until it is steady.
            _keep_pace(connection, pace, window_seconds / 3)
            with _held(url) if is_held else nullcontext():
                began = connection.execute("select extract(epoch from clock_timestamp())::float8").fetchone()[0]
                _keep_pace(connection, pace, WINDOWS * window_seconds)
            if worker.exitcode is not None or producer.exitcode is not None:
                raise RuntimeError("a process of this measurement ended too early; what it said stands above")
            pace.is_over.set()
            producer.join(30)
        jobs = [0] * WINDOWS
        before = 0
        for at, total in history(connection):
            window = int((at - began) // window_seconds)
            if 0 <= window < WINDOWS:
                jobs[window] += total - before
            before = total
    return [count / window_seconds for count in jobs]


def _keep_pace(connection: psycopg.Connection, pace: Pace, seconds: float) -> None:
    """Tell the producer how much is completed. Rarely: with single jobs under a held transaction, counting costs."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        counted_at = time.monotonic()
        pace.completed.value = completed(connection)
        took = time.monotonic() - counted_at
        time.sleep(min(left, max(0.05, took * 50)))


@contextmanager
def _held(url: str) -> Iterator[None]:
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select pg_current_xact_id(), (select count(*) from penstock.queue)")
        yield
        connection.rollback()
