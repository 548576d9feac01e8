"""Bodies as clients send them, what is stored of them, and the same rows by Spark's writer, without a JVM."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from penstock import App
from penstock.server.loading.load_request import LoadReceipt, LoadRequest
from penstock.server.loading.receive import receive_load
from penstock.spark.loading.load_writer import LoadWriter

__all__ = [
    "ARROW",
    "CSV",
    "NDJSON",
    "PARQUET",
    "arrow",
    "csv_of",
    "load",
    "ndjson",
    "parquet",
    "spark_load",
    "staged",
    "stored",
]

NDJSON = "application/x-ndjson"
CSV = "text/csv; charset=utf-8"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
Row = dict[str, Any]


def ndjson(rows: Iterable[Row]) -> bytes:
    return msgspec.json.Encoder().encode_lines(list(rows))


def csv_of(rows: Sequence[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def arrow(*batches: pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def load(
    app: App, body: bytes | Iterable[bytes], content_type: str = NDJSON, *, piece: int = 65_536, **asked: Any
) -> LoadReceipt:
    """Load a body, which comes in pieces."""
    request = LoadRequest(**{"queue": "q", "name": "l", "content_type": content_type} | asked)
    chunks = (body[at : at + piece] for at in range(0, len(body), piece)) if isinstance(body, bytes) else body
    return receive_load(app, request, chunks)


def spark_load(app: App, batch: pa.RecordBatch, name: str = "spark", queue: str = "q", **options: str) -> None:
    """The same by Spark's writer: one task, and its driver."""
    options |= {"url": app.url, "queue": queue, "load": name}
    writer = LoadWriter(from_arrow_schema(batch.schema), False, options)
    writer.commit([writer.write(iter([batch]))])


def stored(app: App, name: str) -> list[tuple[Any, ...]]:
    """What lies in the database of a load, job by job as they arrived, but for what differs between any two."""
    with psycopg.connect(app.url) as connection:
        rows = connection.execute(
            "select p.number, j.priority, j.task, j.key, j.args::text, j.attributes::text, r.run_at,"
            " r.has_idempotency_keys"
            " from penstock.load_range as r join penstock.load as l on l.id = r.load_id"
            " join penstock.job as j on j.id >= r.range * 1024 and j.id < r.range * 1024 + r.size"
            " join penstock.partition as p on p.id = j.partition_id where l.name = %s order by r.range, j.id",
            [name],
        ).fetchall()
    return [tuple(row) for row in rows]


def staged(app: App) -> int:
    """How many ranges lie about that nobody published."""
    total = 0
    for database in app.databases:
        with psycopg.connect(database.url) as connection:
            row = connection.execute("select count(*) from penstock.load_range where load_id is null").fetchone()
        assert row is not None
        total += row[0]
    return total
