"""One by one: `enqueue`, durable on return, against one prepared INSERT and commit of the same row by psycopg, and
against PgQueuer's `enqueue` of one job. They take turns in blocks, on one server, so that all meet the same noise.

PgQueuer runs on asyncpg and uvloop in a process of its own; it is installed as in `peers`, and left out where it cannot
be.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench.peers import PGQUEUER, install, started
from bench.raw_copy import create_table
from bench.run import Run
from bench.server import Connection, Server, connect, wal_position
from bench.workload import ARGUMENTS, TASK, declare

QUESTION = "How many single enqueues a second, against a plain INSERT and commit, and against PgQueuer?"

BLOCK = 250
LOGGED = 200
INSERT = (
    "insert into raw_job (id, enqueued_at, partition_id, priority, task, key, args, attributes)"
    " values (%s, %s, %s, %s, %s, %s, %s, %s)"
)
_encode = msgspec.json.Encoder().encode


@dataclass
class Rates:
    """Jobs a second, a value a repeat; of our calls the median of their times too, and of the bytes each logs."""

    enqueued: list[float] = field(default_factory=list)
    inserted: list[float] = field(default_factory=list)
    by_peer: list[float] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    logged: list[float] = field(default_factory=list)


def measure(run: Run) -> None:
    jobs = run.size(10_000, 1_000)
    rates = Rates()
    with tempfile.TemporaryDirectory(prefix="penstock-peers-") as folder:
        python = install(run, PGQUEUER, Path(folder))
        for _ in run.repeats():
            _measure_once(run.server, python, jobs, rates)
    run.compare("enqueue", "jobs/s", rates.enqueued, "INSERT and commit", rates.inserted, at_least=0.8)
    if rates.by_peer:
        run.compare("enqueue", "jobs/s", rates.enqueued, "PgQueuer", rates.by_peer, at_least=1.1)
    run.state("enqueue, p50", "ms", rates.milliseconds)
    run.state("log of a call", "bytes", rates.logged, at_most=500)
    run.note(f"{jobs:,} jobs a side in blocks of {BLOCK}, one thread, one connection each, no worker at work")
    run.note(f"log: the median of {LOGGED} calls, so that full-page images and new pages do not count")


def _measure_once(server: Server, python: Path | None, jobs: int, rates: Rates) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(server.database())
        connection = stack.enter_context(connect(url))
        app, task = declare(url)
        stack.enter_context(app)
        peer = None if python is None else stack.enter_context(_peer(server, python))
        create_table(connection)
        _take_turns(connection, task, peer, jobs, rates)
        rates.logged.append(median(_logged(connection, task)))


def _take_turns(connection: Connection, task: Any, peer: subprocess.Popen[str] | None, jobs: int, rates: Rates) -> None:
    _enqueue(task, ARGUMENTS[:BLOCK])
    _insert(connection, ARGUMENTS[:BLOCK], 0)
    if peer is not None:
        _enqueue_by(peer, 0)
    calls: list[float] = []
    inserting = peering = 0.0
    for block in range(1, jobs // BLOCK + 1):
        low = block * BLOCK % (len(ARGUMENTS) - BLOCK)
        rows = ARGUMENTS[low : low + BLOCK]
        calls += _enqueue(task, rows)
        inserting += _insert(connection, rows, block * BLOCK)
        if peer is not None:
            peering += _enqueue_by(peer, low)
    done = jobs // BLOCK * BLOCK
    rates.enqueued.append(done / sum(calls))
    rates.inserted.append(done / inserting)
    if peer is not None:
        rates.by_peer.append(done / peering)
    rates.milliseconds.append(median(calls) * 1_000)


def _enqueue(task: Any, rows: Iterable[dict[str, Any]]) -> list[float]:
    """The seconds that each call took."""
    seconds = []
    ended = time.perf_counter()
    for row in rows:
        began = ended
        task.enqueue(**row)
        ended = time.perf_counter()
        seconds.append(ended - began)
    return seconds


def _insert(connection: Connection, rows: Iterable[dict[str, Any]], first: int) -> float:
    """Ids and times come from this side, which saves the server drawing them."""
    began = time.perf_counter()
    for number, row in enumerate(rows, first):
        now = datetime.now(UTC)
        values = [number * 1024, now, 1, 5, TASK, None, _encode(row).decode(), None]
        connection.execute(INSERT, values, prepare=True)
    return time.perf_counter() - began


def _logged(connection: Connection, task: Any) -> Iterator[int]:
    """The bytes of write-ahead log that single calls take."""
    for row in ARGUMENTS[:LOGGED]:
        before = wal_position(connection)
        task.enqueue(**row)
        yield wal_position(connection) - before


@contextmanager
def _peer(server: Server, python: Path) -> Iterator[subprocess.Popen[str]]:
    """PgQueuer on a database of its own, waiting to be told what to enqueue."""
    program = [str(python), str(Path(__file__).with_name(PGQUEUER.program))]
    with server.database() as url:
        subprocess.run([*program, url, "set-up", "0"], check=True)
        command = [*program, url, "enqueue-singly", str(BLOCK)]
        with started(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)) as peer:
            _tell(peer, json.dumps(ARGUMENTS))
            yield peer


def _enqueue_by(peer: subprocess.Popen[str], low: int) -> float:
    """Have it enqueue a block, one by one; the seconds it took."""
    _tell(peer, str(low))
    assert peer.stdout is not None
    return float(peer.stdout.readline())


def _tell(peer: subprocess.Popen[str], line: str) -> None:
    assert peer.stdin is not None
    peer.stdin.write(f"{line}\n")
    peer.stdin.flush()
