"""Every format stores byte for byte what Spark's writer stores of the same rows."""

from __future__ import annotations

import datetime as dt
import gzip
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.server.loading.bodies import (
    ARROW,
    CSV,
    NDJSON,
    PARQUET,
    arrow,
    csv_of,
    load,
    ndjson,
    parquet,
    spark_load,
    stored,
)

from penstock import App

ROWS = [
    {"customer": f"c-{n % 7}", "amount": n / 4, "count": n, "text": 'é,"\n\U0001f600 ' * (n % 3), "express": n % 2 == 0}
    for n in range(5_000)
]
BATCH = pa.RecordBatch.from_pylist(ROWS)
TYPES = {"amount": "number", "count": "integer", "express": "boolean"}
BODIES: dict[str, tuple[bytes, str, dict[str, Any]]] = {
    "NDJSON": (ndjson(ROWS), NDJSON, {}),
    "NDJSON with spaces and escapes": (
        b"\r\n".join(
            line.replace(b'":', b'" : ').replace("é".encode(), b"\\u00e9") for line in ndjson(ROWS).split(b"\n")
        ),
        NDJSON,
        {},
    ),
    "NDJSON in gzip": (
        gzip.compress(ndjson(ROWS[:100])) + gzip.compress(ndjson(ROWS[100:])),
        NDJSON,
        {"content_encoding": "gzip"},
    ),
    "CSV": (
        csv_of([{**row, "text": row["text"] or '""'} for row in ROWS]).replace(b'""""""', b'""'),
        CSV,
        {"types": TYPES},
    ),
    "Arrow": (arrow(BATCH.slice(0, 1_000), BATCH.slice(1_000)), ARROW, {}),
    "Parquet": (parquet(pa.table(BATCH), row_group_size=1_500), PARQUET, {}),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("key", [None, "customer"])
def test_a_body_of_any_format_is_stored_as_from_spark(app: App, name: str, key: str | None) -> None:
    body, content_type, options = BODIES[name]
    spark_load(app, BATCH, task="t", **({} if key is None else {"key": key}))
    done = load(app, body, content_type, task="t", key=key, rows=len(ROWS), **options)
    assert (done.rows, done.duplicates, done.is_new) == (5_000, 0, True)
    expected = stored(app, "spark")
    assert len(expected) == 5_000
    found = stored(app, "l")
    if key is None:
        # What has no key is shared out over the partitions chunk by chunk; the rows are the same, in the same order.
        assert [row[1:] for row in found] == [row[1:] for row in expected]
    else:
        assert found == expected


def test_types_of_arrow_and_parquet_become_what_spark_makes_of_its_own(app: App) -> None:
    berlin = dt.timezone(dt.timedelta(hours=1))
    at = dt.datetime(2026, 11, 15, 10, 0, 0, 123456, tzinfo=berlin)
    values: dict[str, tuple[Any, pa.DataType, pa.DataType]] = {
        # By column: a value, as Spark has it, and as another writer has it.
        "s": ("é", pa.string(), pa.large_string()),
        "low": ("a", pa.string(), pa.string()),
        "i": (7, pa.int64(), pa.uint16()),
        "big": (2**53 + 1, pa.int64(), pa.uint64()),
        "f": (0.5, pa.float32(), pa.float16()),
        "d": (Decimal("1.50"), pa.decimal128(10, 2), pa.decimal256(10, 2)),
        "day": (dt.date(2026, 1, 2), pa.date32(), pa.date64()),
        "at": (at, pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Berlin")),
        "naive": (dt.datetime(2026, 1, 2, 3), pa.timestamp("us"), pa.timestamp("s")),  # noqa: DTZ001
        "took": (dt.timedelta(days=1, seconds=2), pa.duration("us"), pa.duration("ms")),
        "raw": (b"\x00\xff", pa.binary(), pa.binary(2)),
        "list": ([1, None], pa.list_(pa.int64()), pa.large_list(pa.int16())),
        "struct": ({"a": at}, pa.struct({"a": pa.timestamp("us", "UTC")}), pa.struct({"a": pa.timestamp("ms", "UTC")})),
        "map": ([("k", 1)], pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32())),
        "no": (None, pa.int64(), pa.null()),
    }
    values["struct"] = ({"a": at.replace(microsecond=123000)}, *values["struct"][1:])
    given = pa.RecordBatch.from_arrays([pa.array([v], kind) for v, kind, _ in values.values()], list(values))
    other = pa.RecordBatch.from_arrays([pa.array([v], kind) for v, _, kind in values.values()], list(values))
    spark_load(app, given, task="t")
    load(app, arrow(other), ARROW, task="t", name="arrow")
    # Parquet has neither durations nor half floats nor wide decimals of its own.
    names = [name for name in values if name not in ("took", "f", "d")]
    spark_load(app, given.select(names), "spark, fewer", task="t")
    text = other.select(names).set_column(1, "low", pa.array(["a"]).dictionary_encode())
    load(app, parquet(pa.table(text)), PARQUET, task="t", name="parquet")
    assert [row[4] for row in stored(app, "arrow")] == [row[4] for row in stored(app, "spark")]
    assert [row[4] for row in stored(app, "parquet")] == [row[4] for row in stored(app, "spark, fewer")]
    assert '"at":"2026-11-15T09:00:00.123456Z"' in stored(app, "arrow")[0][4]


OPTIONS: list[dict[str, Any]] = [
    {
        "task": "a",
        "args": '{"x": 1}',
        "key": "k",
        "priority": 0,
        "run_at": None,
        "idempotency_key": "once",
        "tenant": "acme",
    },
    {
        "task": "b",
        "args": '{"x":2}',
        "key": None,
        "priority": None,
        "run_at": "2040-01-01T00:00:00Z",
        "idempotency_key": None,
        "tenant": None,
    },
    {
        "task": "a",
        "args": '{"x":3}',
        "key": "é",
        "priority": 9,
        "run_at": "2000-01-01T02:00:00+02:00",
        "idempotency_key": "once",
        "tenant": None,
    },
]


def _with_times() -> list[dict[str, Any]]:
    return [{**row, "run_at": row["run_at"] and dt.datetime.fromisoformat(row["run_at"])} for row in OPTIONS]


def test_reserved_columns_set_the_options_of_each_job(app: App) -> None:
    schema = pa.schema({
        **dict.fromkeys(("task", "args", "key"), pa.string()), "priority": pa.int32(),
        "run_at": pa.timestamp("us", "UTC"), "idempotency_key": pa.string(), "tenant": pa.string(),
    })  # fmt: skip
    batch = pa.RecordBatch.from_pylist(_with_times(), schema=schema)
    spark_load(app, batch)
    expected = stored(app, "spark")
    cells = [{name: "" if value is None else value for name, value in row.items()} for row in OPTIONS]
    for name, body, kind in (
        ("ndjson", ndjson(OPTIONS), NDJSON),
        ("csv", csv_of(cells), CSV),
        ("arrow", arrow(batch), ARROW),
        ("parquet", parquet(pa.table(batch)), PARQUET),
    ):
        done = load(app, body, kind, name=name)
        # Both rows with the key are known from the load before.
        assert (done.rows, done.duplicates) == (3, 2), name
        assert [row[1:] for row in stored(app, name)] == [row[1:] for row in expected], name
    objects = [{**row, "args": {"x": n}} for n, row in enumerate(OPTIONS, 1)]
    load(app, ndjson(objects), name="objects")
    assert sorted(row[4] for row in stored(app, "objects")) == ['{"x":1}', '{"x":2}', '{"x":3}']
    absent = [{name: value for name, value in row.items() if value is not None} for row in OPTIONS]
    load(app, ndjson(absent), name="absent")
    assert [row[1:] for row in stored(app, "absent")] == [row[1:] for row in expected]


def test_fields_of_ndjson_may_differ_from_line_to_line(app: App) -> None:
    rows: list[dict[str, Any]] = [
        {"n": 1},
        {"n": 2, "more": [1, {"a": None}], "priority": 3},
        {"task": "u", "args": {}, "key": 12345678901234567890},
    ]
    load(app, ndjson({"task": "t", **row} for row in rows), name="mixed")
    found = sorted(stored(app, "mixed"), key=lambda row: row[2:5])
    assert [(row[1], row[2], row[3], row[4]) for row in found] == [
        (5, "t", None, '{"n":1}'),
        (3, "t", None, '{"n":2,"more":[1,{"a":null}]}'),
        (5, "u", b"12345678901234567890", "{}"),
    ]


def test_a_key_may_be_a_number_and_blank_lines_are_no_rows(app: App) -> None:
    body = b'\n{"customer":7,"n":1}\r\n\n  \n{"customer":"7","n":2}'
    assert load(app, body, task="t", key="customer", rows=2, piece=1).rows == 2
    assert [row[3:5] for row in stored(app, "l")] == [
        (b"7", b'{"customer":7,"n":1}'.decode()),
        (b"7", '{"customer":"7","n":2}'),
    ]


def test_csv_holds_lines_quotes_and_empty_cells_as_spark_reads_them(app: App) -> None:
    body = b'\xef\xbb\xbfa,"b ""c"""\r\n1,"x, ""y""\r\nz\r"\r\n,""\r\n\r\n"2",\xc3\xa9'
    for piece in (1, 3, 65_536):
        load(app, body, CSV, task="t", name=f"by {piece}", piece=piece, types={"a": "integer"}, rows=3)
        assert [row[4] for row in stored(app, f"by {piece}")] == [
            '{"a":1,"b \\"c\\"":"x, \\"y\\"\\r\\nz\\r"}',
            '{"a":null,"b \\"c\\"":""}',
            '{"a":2,"b \\"c\\"":"é"}',
        ]


def test_a_long_csv_is_cut_between_rows_and_not_within_quotes(app: App) -> None:
    rows = [{"n": str(n), "text": 'a "line"\r\n' * (n % 97)} for n in range(3_000)]
    load(app, csv_of(rows), CSV, task="t", key="n", rows=3_000)
    spark_load(
        app, pa.RecordBatch.from_pylist([{**row, "text": row["text"] or None} for row in rows]), task="t", key="n"
    )
    assert stored(app, "l") == stored(app, "spark")


@pytest.mark.parametrize("kind", [NDJSON, CSV, ARROW, PARQUET])
def test_a_body_without_rows_is_a_load_of_none(app: App, kind: str) -> None:
    none = pa.RecordBatch.from_pylist([], schema=pa.schema({"n": pa.int64()}))
    body = {NDJSON: b"", CSV: b"n\n", ARROW: arrow(none), PARQUET: parquet(pa.table(none))}[kind]
    done = load(app, body, kind, task="t", rows=0)
    assert (done.rows, done.is_new, load(app, body, kind, task="t").is_new) == (0, True, False)
