"""One statement or COPY: the two ways in which storage writes a call, for calls of different sizes, each with the
receipt that a real call carries. Where they cross is what FEW in storage/enqueue/write.py should be; what either costs
in WAL is stated for the larger ones.
"""

from __future__ import annotations

import time
from statistics import median

from bench.run import Run
from bench.server import connect, wal_position
from bench.workload import ARGUMENTS, TASK, declare
from penstock.storage.connection.database import Connection, Database
from penstock.storage.enqueue.job_group import Destination, JobGroup
from penstock.storage.enqueue.receipts import Receipt
from penstock.storage.enqueue.steps import drive
from penstock.storage.enqueue.write import FEW, write_few, write_groups
from penstock.task.arguments import Arguments

QUESTION = "From how many jobs a call on is COPY faster than one statement?"

SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
WAL_SIZES = (10, 100, 1_000)
WAL_JOBS = 20_000


def measure(run: Run) -> None:
    seconds = run.size(1_000, 100) / 1_000
    by_statement: dict[int, list[float]] = {size: [] for size in SIZES}
    by_copy: dict[int, list[float]] = {size: [] for size in SIZES}
    wal: dict[int, list[tuple[float, float]]] = {size: [] for size in WAL_SIZES}
    for _ in run.repeats():
        with run.server.database() as url, connect(url) as plain:
            app, task = declare(url)
            with app:
                app.migrate()
            queue, partition = plain.execute("select queue_id, id from penstock.partition").fetchone()
            args = [Arguments(task.definition.function).encode(row) for row in ARGUMENTS]
            database = Database(url)
            with database.connect() as connection:
                for size in SIZES:
                    group = JobGroup(Destination(queue, partition, 5, TASK), range(size), args[:size])
                    one, other = _alternate(connection, group, seconds)
                    by_statement[size].append(one)
                    by_copy[size].append(other)
                    if size in wal:
                        wal[size].append(_wal_bytes(connection, group))
    for size in SIZES:
        name = f"{size:>5,} jobs: one statement"
        run.compare(name, "µs/job", by_statement[size], "COPY", by_copy[size])
    for size, pairs in wal.items():
        name = f"{size:>5,} jobs: WAL, one statement"
        run.compare(name, "bytes/job", [pair[0] for pair in pairs], "COPY", [pair[1] for pair in pairs])
    slower = [size for size in SIZES if median(by_statement[size]) > median(by_copy[size])]
    crossing = f"one statement is slower from {min(slower):,} on" if slower else "one statement is never slower"
    run.note(f"{crossing}; FEW is {FEW}: calls below it are one statement")


def _alternate(connection: Connection, group: JobGroup, seconds: float) -> tuple[float, float]:
    """Microseconds a job by one statement and by COPY: the medians of calls that take turns."""
    ids = [0] * len(group.args)
    times: tuple[list[float], list[float]] = ([], [])
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times[0]) < 10:
        began = time.perf_counter()
        _by_statement(connection, group, ids)
        between = time.perf_counter()
        _by_copy(connection, group, ids)
        times[0].append(between - began)
        times[1].append(time.perf_counter() - between)
    # The first few plan and prepare.
    return tuple(median(each[4:]) * 1e6 / len(ids) for each in times)  # type: ignore[return-value]


def _wal_bytes(connection: Connection, group: JobGroup) -> tuple[float, float]:
    """Bytes of WAL a job by one statement and by COPY."""
    ids = [0] * len(group.args)
    found = []
    for write in (_by_statement, _by_copy):
        before = wal_position(connection)
        for _ in range(WAL_JOBS // len(ids)):
            write(connection, group, ids)
        found.append((wal_position(connection) - before) / WAL_JOBS)
    return found[0], found[1]


def _by_statement(connection: Connection, group: JobGroup, ids: list[int]) -> None:
    drive(connection, write_few(group, ids, Receipt(token=123_456_789_012_345)))


def _by_copy(connection: Connection, group: JobGroup, ids: list[int]) -> None:
    with connection.transaction():
        drive(connection, write_groups([group], ids, Receipt()))
