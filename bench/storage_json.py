"""Arguments as json or as jsonb: raw COPY into two tables that differ in nothing else, WAL and size a row, and reading
the arguments back as text in lots of 1,000, as a worker does.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from bench.raw_copy import CALL, COPY, create_table, lines_of
from bench.run import Run
from bench.server import Server, connect, wal_position
from bench.workload import ARGUMENT_BYTES, calls_of

QUESTION = "What do arguments cost as json, against jsonb?"


class Stored(NamedTuple):
    """What one kind costs."""

    copied_a_second: float
    wal_bytes: float
    stored_bytes: float
    read_a_second: float


def measure(run: Run) -> None:
    jobs = run.size(300_000, 30_000)
    as_json, as_jsonb = [], []
    for _ in run.repeats():
        as_json.append(store(run.server, jobs, "json"))
        as_jsonb.append(store(run.server, jobs, "jsonb"))
    for name, unit, index in (
        ("COPY", "rows/s", 0),
        ("WAL a row", "bytes", 1),
        ("stored a row, with its index", "bytes", 2),
        ("read back as text", "rows/s", 3),
    ):
        run.compare(
            f"json: {name}", unit, [each[index] for each in as_json], "jsonb", [each[index] for each in as_jsonb]
        )
    run.note(f"{jobs:,} rows, {ARGUMENT_BYTES:.0f} bytes of arguments on average; bytes were made beforehand")


def store(server: Server, jobs: int, kind: str) -> Stored:
    calls = calls_of(CALL)
    ready = [lines_of(number, calls[number % len(calls)]) for number in range(jobs // CALL)]
    with server.database() as url, connect(url) as connection:
        create_table(connection)
        connection.execute(f"alter table raw_job alter column args type {kind} using args::{kind}")
        wal_before, began = wal_position(connection), time.perf_counter()
        for lines in ready:
            with connection.transaction(), connection.cursor().copy(COPY) as copy:
                copy.write(lines)
        copied = time.perf_counter() - began
        wal_bytes = wal_position(connection) - wal_before
        size = connection.execute("select pg_total_relation_size('raw_job')").fetchone()[0]
        cursor = connection.cursor(binary=True)
        began = time.perf_counter()
        for number in range(jobs // CALL):
            bounds = [number * 1024, (number + 1) * 1024]
            cursor.execute("select id, args::text from raw_job where id >= %s and id < %s", bounds).fetchall()
        read = time.perf_counter() - began
        return Stored(jobs / copied, wal_bytes / jobs, size / jobs, jobs / read)
