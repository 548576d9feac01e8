"""A load of NDJSON by the server's side of it, without HTTP: 1,000,000 rows from an iterator of pieces to jobs that a
worker could claim, against two plain psycopg COPY streams of the same rows, read from the same lines, into a table like
that of jobs, with nothing checked and nothing made ready. Beside it: the other formats, and how much memory a process
has that loads 100,000 rows, and one that loads 1,000,000.
"""

from __future__ import annotations

import io
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from bench import raw_copy
from bench.run import Run
from bench.server import Server, connect
from bench.workload import ARGUMENTS, QUEUE, TASK, declare
from penstock.server.loading.load_request import LoadRequest
from penstock.server.loading.receive import receive_load

QUESTION = "How fast does the server load a body, against plain COPY of the same rows, and in how much memory?"

STREAMS = 2
PARTITIONS = 4
PIECE = 65_536
KINDS = {
    "NDJSON": "application/x-ndjson",
    "CSV": "text/csv",
    "Arrow": "application/vnd.apache.arrow.stream",
    "Parquet": "application/vnd.apache.parquet",
}
_encode_lines = msgspec.json.Encoder().encode_lines


def measure(run: Run) -> None:
    # A tenth of them is made of whole blocks, too.
    rows = run.size(1_000_000, 10 * len(ARGUMENTS))
    found: dict[str, list[float]] = {name: [] for name in (*KINDS, "copy")}
    memory: dict[str, dict[int, list[float]]] = {name: {rows // 10: [], rows: []} for name in KINDS}
    for _ in run.repeats():
        found["copy"].append(_copy(run.server, rows))
        for name in KINDS:
            for size in (rows // 10, rows):
                rate, megabytes = _load(run.server, name, size)
                memory[name][size].append(megabytes)
            found[name].append(rate)
    for name in KINDS:
        run.compare(
            f"load, {name}", "rows/s", found[name], f"{STREAMS} COPY streams", found["copy"],
            at_least=0.35 if name == "NDJSON" else None,
        )  # fmt: skip
    for name, by_size in memory.items():
        more = [large - small for small, large in zip(*by_size.values(), strict=True)]
        run.state(f"memory of {rows:,} rows over that of {rows // 10:,}, {name}", "MB", more, at_most=50.0)
    run.note(
        f"{rows:,} rows of 5 columns in pieces of {PIECE} bytes, {PARTITIONS} partitions, by key, of a declared task"
    )


def _blocks(rows: int) -> Iterator[list[dict[str, Any]]]:
    size = len(ARGUMENTS)
    for start in range(0, rows, size):
        yield ARGUMENTS[: min(size, rows - start)]


def _pieces(kind: str, rows: int) -> Iterator[bytes]:
    """A body; what it is made of is made beforehand, and is as long for every body of that kind."""
    if kind == "NDJSON":
        body = _encode_lines(ARGUMENTS)
        blocks = [body if len(each) == len(ARGUMENTS) else _encode_lines(each) for each in _blocks(rows)]
    elif kind == "CSV":
        sink = io.BytesIO()
        pa_csv.write_csv(pa.Table.from_pylist(ARGUMENTS), sink, pa_csv.WriteOptions(include_header=False))
        blocks = [(",".join(ARGUMENTS[0]) + "\n").encode(), *[sink.getvalue()] * (rows // len(ARGUMENTS))]
    elif kind == "Arrow":
        # A schema, batches that are all alike, and eight bytes that end it.
        batch = pa.RecordBatch.from_pylist(ARGUMENTS)
        empty, one = io.BytesIO(), io.BytesIO()
        with pa.ipc.new_stream(empty, batch.schema), pa.ipc.new_stream(one, batch.schema) as writer:
            writer.write_batch(batch)
        head, message = empty.getvalue()[:-8], one.getvalue()[len(empty.getvalue()) - 8 : -8]
        blocks = [head, *[message] * (rows // len(ARGUMENTS)), empty.getvalue()[-8:]]
    else:
        # It has to be whole before it is sent; in memory it would be counted as the server's.
        with tempfile.TemporaryFile() as file:
            # In row groups as long as pyarrow makes them where nothing is said.
            table = pa.Table.from_pylist(ARGUMENTS)
            pq.write_table(pa.concat_tables([table.slice(0, 0), *[table] * (rows // len(ARGUMENTS))]), file)
            file.seek(0)
            while piece := file.read(PIECE):
                yield piece
        return
    for block in blocks:
        for start in range(0, len(block), PIECE):
            yield block[start : start + PIECE]


def _load(server: Server, kind: str, rows: int) -> tuple[float, float]:
    """Rows a second, and the most memory in MB that the process had; in a process of its own."""
    with server.database() as url, connect(url) as connection:
        context = get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_load_in_process, args=(url, kind, rows, there))
        process.start()
        # Where it dies, so does what is waited for.
        there.close()
        rate, megabytes = here.recv()
        process.join()
        ready = connection.execute("select sum(high - low) from penstock.ready").fetchone()[0]
        if ready != rows:
            raise RuntimeError(f"{ready} of {rows} jobs can be claimed")
        return rate, megabytes


def _load_in_process(url: str, kind: str, rows: int, pipe: Any) -> None:
    app, _ = declare(url, key="customer_id", partitions=PARTITIONS)
    with app:
        app.migrate()
        # What is imported by the first load is imported by a small one, under another name.
        for name, size in (("first", 0), ("load", rows)):
            request = LoadRequest(queue=QUEUE, name=name, task=TASK, key="customer_id", content_type=KINDS[kind])
            pieces = _pieces(kind, size)
            first = next(pieces, b"")
            # What making the body took is no memory of the load.
            pa.default_memory_pool().release_unused()
            Path("/proc/self/clear_refs").write_text("5")
            readers = _Readers()
            began = time.perf_counter()
            receive_load(app, request, chain([first], readers.watch(pieces)))
            seconds = time.perf_counter() - began
            readers.over.set()
    pipe.send((rows / seconds, _peak("self") + readers.peak))


class _Readers:
    """The process that reads a Parquet file, if there is one: how much memory it had, at most."""

    def __init__(self) -> None:
        self.peak = 0.0
        self.over = threading.Event()

    def watch(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Look from when the body was received, by the thread that receives it: the reader is its child."""
        children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
        yield from pieces
        threading.Thread(target=self._look, args=(children,), daemon=True).start()

    def _look(self, children: Path) -> None:
        while not self.over.wait(0.01):
            for child in children.read_text().split():
                with suppress(OSError, StopIteration):
                    # Until it is that program it has its parent's memory.
                    if b"parquet_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                        self.peak = max(self.peak, _peak(child))


def _peak(process: str) -> float:
    """The most memory in MB that a process had. `ru_maxrss` would be that of its parent too, if that had more."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


def _copy(server: Server, rows: int) -> float:
    """Two processes, each with half of the lines, from when both are ready."""
    with server.database() as url, connect(url) as connection:
        raw_copy.create_table(connection)
        context = get_context("spawn")
        barrier = context.Barrier(STREAMS + 1)
        processes = [
            context.Process(target=_copy_lines, args=(url, rows // STREAMS, number, barrier))
            for number in range(STREAMS)
        ]
        for process in processes:
            process.start()
        barrier.wait()
        began = time.perf_counter()
        for process in processes:
            process.join()
        seconds = time.perf_counter() - began
        written = connection.execute("select count(*) from raw_job").fetchone()[0]
        if written != rows:
            raise RuntimeError(f"{written} of {rows} rows were copied")
        return rows / seconds


def _copy_lines(url: str, rows: int, number: int, barrier: Any) -> None:
    calls = [_encode_lines(ARGUMENTS[low : low + 1_000]) for low in range(0, len(ARGUMENTS), 1_000)]
    decode = msgspec.json.Decoder(dict[str, Any]).decode_lines
    with connect(url) as connection:
        barrier.wait()
        first = number * 1_000_000
        with connection.transaction(), connection.cursor().copy(raw_copy.COPY) as copy:
            for call in range(rows // 1_000):
                copy.write(raw_copy.lines_of(first + call, decode(calls[call % len(calls)])))
