"""One by one: `enqueue`, durable on return, against one prepared INSERT and commit of the same row by psycopg. They
take turns in blocks, on one database, so that both meet the same noise.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from bench.raw_copy import create_table
from bench.run import Run
from bench.server import Connection, connect
from bench.workload import ARGUMENTS, TASK, declare

QUESTION = "How many single enqueues a second, against a plain INSERT and commit?"

BLOCK = 250
INSERT = (
    "insert into raw_job (id, enqueued_at, partition_id, priority, task, key, args, attributes)"
    " values (%s, %s, %s, %s, %s, %s, %s, %s)"
)
_encode = msgspec.json.Encoder().encode


def measure(run: Run) -> None:
    jobs = run.size(10_000, 1_000)
    enqueued, inserted = [], []
    for _ in run.repeats():
        with run.server.database() as url, connect(url) as connection:
            app, task = declare(url)
            with app:
                create_table(connection)
                rates = _take_turns(connection, task, jobs)
        enqueued.append(rates[0])
        inserted.append(rates[1])
    run.compare("enqueue", "jobs/s", enqueued, "INSERT and commit", inserted, at_least=0.7)
    run.note(f"{jobs:,} jobs a side in blocks of {BLOCK}, one thread, one connection each, no worker at work")


def _take_turns(connection: Connection, task: Any, jobs: int) -> tuple[float, float]:
    seconds = [0.0, 0.0]
    _enqueue(task, ARGUMENTS[:BLOCK])
    _insert(connection, ARGUMENTS[:BLOCK], 0)
    for block in range(1, jobs // BLOCK + 1):
        low = block * BLOCK % (len(ARGUMENTS) - BLOCK)
        rows = ARGUMENTS[low : low + BLOCK]
        seconds[0] += _enqueue(task, rows)
        seconds[1] += _insert(connection, rows, block * BLOCK)
    done = jobs // BLOCK * BLOCK
    return done / seconds[0], done / seconds[1]


def _enqueue(task: Any, rows: Iterable[dict[str, Any]]) -> float:
    began = time.perf_counter()
    for row in rows:
        task.enqueue(**row)
    return time.perf_counter() - began


def _insert(connection: Connection, rows: Iterable[dict[str, Any]], first: int) -> float:
    """Ids and times come from this side, which saves the server drawing them."""
    began = time.perf_counter()
    for number, row in enumerate(rows, first):
        now = datetime.now(UTC)
        values = [number * 1024, now, 1, 5, TASK, None, _encode(row).decode(), None]
        connection.execute(INSERT, values, prepare=True)
    return time.perf_counter() - began
