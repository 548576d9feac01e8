"""The floor: the same rows written by COPY alone, over one connection, in transactions of 1,000.

`from_dicts` starts where a producer does, at Python dicts: it encodes them, formats the lines, copies and commits, and
checks nothing. `from_bytes` has all lines ready before the clock starts, and so shows what the server alone takes. The
table is like penstock.job, with its primary key, without table partitions.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import msgspec

from bench.server import Connection, Server, connect
from bench.workload import TASK, calls_of

__all__ = ["CALL", "COPY", "create_table", "from_bytes", "from_dicts", "lines_of"]

CALL = 1_000
COPY = "copy raw_job (id, enqueued_at, partition_id, priority, task, key, args, attributes) from stdin"
_encode = msgspec.json.Encoder().encode


def from_dicts(server: Server, jobs: int) -> float:
    """Rows a second."""
    calls = calls_of(CALL)
    with server.database() as url, connect(url) as connection:
        create_table(connection)
        started = time.perf_counter()
        for number in range(jobs // CALL):
            with connection.transaction(), connection.cursor().copy(COPY) as copy:
                copy.write(lines_of(number, calls[number % len(calls)]))
        return jobs / (time.perf_counter() - started)


def from_bytes(server: Server, jobs: int) -> float:
    """Rows a second where the lines were made beforehand."""
    calls = calls_of(CALL)
    ready = [lines_of(number, calls[number % len(calls)]) for number in range(jobs // CALL)]
    with server.database() as url, connect(url) as connection:
        create_table(connection)
        started = time.perf_counter()
        for lines in ready:
            with connection.transaction(), connection.cursor().copy(COPY) as copy:
                copy.write(lines)
        return jobs / (time.perf_counter() - started)


def create_table(connection: Connection) -> None:
    connection.execute("create table raw_job (like penstock.job including all)")


def lines_of(call: int, rows: list[dict[str, Any]]) -> bytes:
    """A call's rows in COPY's text format. The arguments used here need no escaping."""
    head = b"\t%b\t1\t5\t%b\t\\N\t" % (datetime.now(UTC).isoformat().encode(), TASK.encode())
    first = call * 1024
    return b"".join([b"%d%b%b\t\\N\n" % (first + place, head, _encode(row)) for place, row in enumerate(rows)])
