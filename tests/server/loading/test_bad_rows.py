"""What is wrong with a body or a row is told with its place and the remedy; nothing is enqueued or left behind."""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.server.loading.bodies import ARROW, CSV, NDJSON, PARQUET, arrow, load, ndjson, parquet, staged

from penstock import App, InvalidInput, NotFound, UnknownTask
from penstock.server.loading.load_request import LoadLimits, LoadRequest, read_types
from penstock.server.loading.receive import receive_load

GOOD = b'{"n":1}\n'
# More than a block: what was read before the bad row is staged already, or about to be.
MANY = GOOD * 200_000


@dataclasses.dataclass
class Bad:
    body: bytes
    field: str
    said: str
    kind: str = NDJSON
    asked: dict[str, Any] = dataclasses.field(default_factory=lambda: {"task": "t"})


def one(*values: Any, kind: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, kind)})


BAD: dict[str, Bad] = {
    "no JSON": Bad(GOOD + b"{n:1}\n" + GOOD, "body", r"line 2 is no JSON object: .*Nothing was enqueued"),
    "late": Bad(MANY + b"{", "body", "line 200001 is no JSON object"),
    "no object": Bad(b"\n[1]\n", "body", "line 2 is no JSON object: Expected `object`, got `array`"),
    "two on a line": Bad(b'{"n":1}{"n":2}\n', "body", "line 1 is no JSON object"),
    "bad UTF-8": Bad(GOOD + b'{"n":"\xff"}\n', "body", "line 2 is not UTF-8"),
    "half of a pair": Bad(b'{"n":"\\ud800"}\n', "body", "line 1 is no JSON object"),
    "no number": Bad(b'{"n":1e999}\n', "body", "line 1 is no JSON object: Number out of range"),
    "much too deep": Bad(b'{"n":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "body", "line 1 is nested too deeply"),
    "too deep": Bad(b'{"n":' + b"[" * 101 + b"]" * 101 + b"}\n", "n", r"nested too deeply.*row 0"),
    "a long line": Bad(GOOD + b'{"n":"' + b"x" * 2_000_000 + b'"}\n', "body", "line 2 is longer than 1048576 bytes"),
    "a line that never ends": Bad(GOOD + b'{"n":"' + b"x" * 9_000_000, "body", "line 2 is longer than 1048576 bytes"),
    "long arguments": Bad(GOOD + b'{"n":"' + b"x" * 300_000 + b'"}\n', "args", r"300008 bytes .* too long.*row 1"),
    "key is null": Bad(
        b'{"k":"a"}\n{"k":null}\n', "k", r"the key is null; give every row one \(row 1", asked={"task": "t", "key": "k"}
    ),
    "key is missing": Bad(
        b'{"k":"a"}\n{"n":1}\n', "key", r"there is no column 'k'.*\(row 1", asked={"task": "t", "key": "k"}
    ),
    "key is no text": Bad(
        b'{"k":1.5}\n',
        "key",
        r"'k' is a number; it must be text, bytes or a whole number \(row 0",
        asked={"task": "t", "key": "k"},
    ),
    "long key": Bad(b'{"k":"' + b"k" * 513 + b'"}\n', "key", r"513 bytes.*row 0", asked={"task": "t", "key": "k"}),
    "priority": Bad(b'{"n":1,"priority":10}\n', "priority", r"10 is out of bounds; give 0 to 9 \(row 0"),
    "priority as text": Bad(b'{"n":1,"priority":"1"}\n', "priority", r"is text; it must be a whole number from 0 to 9"),
    "priority beyond": Bad(b'{"n":1,"priority":99999999999999999999}\n', "priority", "out of bounds"),
    "run_at": Bad(b'{"n":1,"run_at":"soon"}\n', "run_at", r"'soon' is no time; write it as 2026-"),
    "run_at without zone": Bad(b'{"n":1,"run_at":"2026-01-01T00:00:00"}\n', "run_at", "no time zone"),
    "tenant": Bad(b'{"n":1,"tenant":" "}\n', "tenant", r"blank; give 1 to 200 characters \(row 0"),
    "NUL": Bad(b'{"n":1,"tenant":"a\\u0000"}\n', "tenant", "NUL character"),
    "idempotency_key": Bad(b'{"n":1,"idempotency_key":7}\n', "idempotency_key", "is a number; it must be text"),
    "args": Bad(b'{"args":[]}\n', "args", r"is an array; it must be a JSON object.*row 0"),
    "args as text": Bad(b'{"args":"[]"}\n', "args", "a JSON object is needed"),
    "no args": Bad(b'{"args":{}}\n{"args":null}\n', "args", r"it is null; give \{\} where there are none \(row 1"),
    "args and others": Bad(b'{"args":{},"n":1}\n', "n", "with a column 'args' the others are"),
    "no task": Bad(GOOD, "task", "there is none", asked={}),
    "task is null": Bad(b'{"task":null,"n":1}\n', "task", "it is null; give every row one", asked={}),
    "two tasks": Bad(b'{"n":1,"task":"t"}\n', "task", "given as an option and as a column"),
    "another case": Bad(b'{"n":1,"Key":"a"}\n', "Key", "differs from the reserved column 'key' only by case"),
    "too few": Bad(GOOD * 3, "rows", "3 rows came, and there should be 4", asked={"task": "t", "rows": 4}),
    "gzip cut": Bad(
        gzip.compress(MANY)[:-20], "body", "its gzip ends too early", asked={"task": "t", "content_encoding": "gzip"}
    ),
    "no gzip": Bad(GOOD, "body", "it is not gzip", asked={"task": "t", "content_encoding": "gzip"}),
    "CSV: no number": Bad(
        b"n\n1\nx\n",
        "n",
        "row 1 has 'x', which is no integer of 64 bits. Nothing was enqueued; mend it$",
        CSV,
        {"task": "t", "types": {"n": "integer"}},
    ),
    "CSV: NaN": Bad(b"n\n1\nNaN\n", "n", r"nan is not JSON.*row 1", CSV, {"task": "t", "types": {"n": "number"}}),
    "CSV: uneven": Bad(b"a,b\n1,2\n3\n", "body", "row 1 has 1 columns, and the header 2", CSV),
    "CSV: bad UTF-8": Bad(b"a\nx\n\xff\n", "a", "row 1 has b'.xff'", CSV),
    "CSV: stray quote": Bad(b'a,b\n1,2\n5" pipe,3\n', "body", "at row 1 or shortly before, a quote", CSV),
    "CSV: open quote": Bad(b'a,b\n1,2\n"5,3\n', "body", "or one is missing", CSV),
    "CSV: endless": Bad(b'a,b\n"' + b"x" * 3_000_000, "body", "has not ended after 1048576 bytes", CSV),
    "CSV: twice": Bad(b"a,a\n1,2\n", "a", "two columns have this name", CSV),
    "CSV: nothing": Bad(b"", "columns", "there are none; send a header", CSV),
    "CSV: run_at": Bad(b"a,run_at\n1,2026-01-01\n", "run_at", "row 0 has '2026-01-01', which is no timestamp", CSV),
    "CSV: a lone CR": Bad(b"n\na\rb\n", "body", "at row 0 or shortly before, a carriage return", CSV),
    "CSV: a lone CR of two": Bad(b"a,b\n1,2\n3\r,4\n", "body", "at row 1 or shortly before, a carriage return", CSV),
    "CSV: a lone CR at the end": Bad(b'a\n"\r"\n\r', "body", "a carriage return", CSV),
    "CSV: no name": Bad(b"a,,b\n1,2,3\n", "columns", "column 1 of the CSV has no name; name it", CSV),
    "CSV: types": Bad(
        b"a\n1\n", "types", "there is no column 'b'; there are a", CSV, {"task": "t", "types": {"b": "number"}}
    ),
    "Arrow: rubbish": Bad(GOOD, "body", "it is no Arrow IPC stream", ARROW),
    "Arrow: nothing": Bad(b"", "body", "it is no Arrow IPC stream", ARROW),
    "Arrow: cut": Bad(arrow(one("a" * 1_000))[:-200], "body", "it is no Arrow IPC stream", ARROW),
    "Arrow: cut between batches": Bad(arrow(one(1), one(2))[:-8], "body", "does not end with its end-of-stream", ARROW),
    "Arrow: cut in the mark": Bad(arrow(one(1))[:-4], "body", "it is no Arrow IPC stream|does not end with", ARROW),
    "Arrow: two streams": Bad(arrow(one(1)) * 2, "body", "more follows the end of the Arrow IPC stream", ARROW),
    "Arrow: rubbish behind": Bad(arrow(one(1)) + b"z", "body", "more follows the end of the Arrow IPC", ARROW),
    "Arrow: compressed": Bad(arrow(one("a"), compression="zstd"), "body", "record batch 0 is compressed", ARROW),
    "Arrow: dictionary": Bad(
        arrow(pa.record_batch({"x": pa.array(["a"]).dictionary_encode()})), "x", "encoded by a dictionary", ARROW
    ),
    "Arrow: large": Bad(
        arrow(one("a" * 70_000_000)), "body", "or has a record batch of more than 67108864 bytes", ARROW
    ),
    "Arrow: many": Bad(
        arrow(one(*[None] * 1_100_000, kind=pa.null())), "body", "has 1100000 rows; write batches of", ARROW
    ),
    "Arrow: union": Bad(
        arrow(pa.record_batch({"x": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])})),
        "x",
        "cannot be an argument; cast it to string",
        ARROW,
    ),
    "Arrow: nanoseconds": Bad(
        arrow(one(1_000, 1_001, kind=pa.timestamp("ns", "UTC"))), "x", "row 1 has .*, which is no timestamp", ARROW
    ),
    "Arrow: infinity": Bad(arrow(one(1.0, float("inf"))), "x", r"inf is not JSON.*row 1", ARROW),
    "Arrow: key": Bad(arrow(one(1.5)), "key", "column 'x' is double; a key is text", ARROW, {"task": "t", "key": "x"}),
    "Parquet: rubbish": Bad(GOOD, "body", "it is no Parquet file that can be read", PARQUET),
    "Parquet: cut": Bad(parquet(pa.table(one(1, 2)))[:-9], "body", "it is no Parquet file that can be read", PARQUET),
    "Parquet: key": Bad(
        parquet(pa.table(one("a", None))), "x", r"the key is null.*row 1", PARQUET, {"task": "t", "key": "x"}
    ),
    "order": Bad(
        b'{"at":1}\n{"at":3}\n{"at":2}\n',
        "order_by",
        "row 2 has 2 in 'at', after 3",
        asked={"task": "t", "order_by": "at"},
    ),
    "order: kinds": Bad(
        b'{"at":1}\n{"at":"a"}\n',
        "order_by",
        "row 1 has 'a' in 'at', which cannot be compared",
        asked={"task": "t", "order_by": "at"},
    ),
    "order: nulls": Bad(
        b'{"at":null}\n{"at":1}\n', "order_by", "row 1 has 1 in 'at', after null", asked={"task": "t", "order_by": "at"}
    ),
    "order: no column": Bad(
        GOOD, "order_by", "there is no column 'at'; there are n", asked={"task": "t", "order_by": "at"}
    ),
    "CSV: order": Bad(
        b"at\n2\n10\n", "order_by", "row 1 has '10' in 'at', after '2'", CSV, {"task": "t", "order_by": "at"}
    ),
}


@pytest.fixture(scope="module")
def refusing_app(server_url: str, template_database: str) -> Iterator[App]:
    """One for all: nothing of what is refused is left in it."""
    from tests.servers import created_database

    with created_database(server_url, template_database) as url, App(url) as app:
        app.queue("q", partitions=2)
        app.migrate()
        yield app


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_told_with_its_place_and_nothing_is_left(refusing_app: App, name: str) -> None:
    bad = BAD[name]
    with pytest.raises(InvalidInput, match=f"(?s){bad.said}") as caught:
        load(refusing_app, bad.body, bad.kind, **bad.asked)
    assert caught.value.field == bad.field
    assert (refusing_app.stats("q").total_enqueued, staged(refusing_app), refusing_app.loads()) == (0, 0, [])


CALLS: dict[str, tuple[dict[str, Any], str, str]] = {
    "kind": ({"content_type": "application/json"}, "Content-Type", "send application/x-ndjson, text/csv"),
    "charset": ({"content_type": "text/csv; charset=latin1"}, "Content-Type", "send UTF-8"),
    "header": ({"content_type": "text/csv; header=absent"}, "Content-Type", "send it with a header"),
    "encoding": ({"content_encoding": "br"}, "Content-Encoding", "send gzip, or leave it out"),
    "compressed Parquet": ({"content_type": PARQUET, "content_encoding": "gzip"}, "Content-Encoding", "sent as it is"),
    "name": ({"name": " "}, "load", "blank"),
    "task": ({"task": "\0"}, "task", "NUL"),
    "rows": ({"rows": -1}, "rows", "out of bounds"),
    "types": ({"content_type": CSV, "types": {"n": "int"}}, "types", "give string, integer, number, boolean"),
    "types of NDJSON": ({"types": {"n": "integer"}}, "types", "they are of a CSV's columns"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_cannot_be_is_refused_before_its_body_is_read(refusing_app: App, name: str) -> None:
    asked, at, said = CALLS[name]

    def never() -> Iterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    with pytest.raises(InvalidInput, match=said) as caught:
        load(refusing_app, never(), **{"task": "t", **asked})
    assert caught.value.field == at
    with pytest.raises(NotFound, match="queue 'nowhere' does not exist"):
        load(refusing_app, never(), task="t", queue="nowhere")


def test_limits_hold_and_say_which_they_are(refusing_app: App) -> None:
    limits = LoadLimits(rows=100, parquet_bytes=1_000)
    request = LoadRequest(queue="q", name="l", task="t", content_type=NDJSON)
    with pytest.raises(InvalidInput, match="it has more than 100 rows; send several loads"):
        receive_load(refusing_app, request, iter([GOOD * 101]), limits)
    request = LoadRequest(queue="q", name="l", task="t", content_type=PARQUET)
    with pytest.raises(InvalidInput, match="more than 1000 bytes is too long; give several"):
        receive_load(refusing_app, request, iter([b"PAR1", b"x" * 1_000]), limits)
    assert (refusing_app.stats("q").total_enqueued, staged(refusing_app)) == (0, 0)


def test_types_are_read_as_a_url_has_them() -> None:
    assert read_types("amount:number, a:b:integer,") == {"amount": "number", "a:b": "integer"}
    with pytest.raises(InvalidInput, match="write column:number"):
        read_types("number")


def test_an_undeclared_task_is_refused_where_the_app_has_tasks_of_the_queue(app: App) -> None:
    app.queue("q", partitions=2).task(name="known")(lambda n: None)
    with pytest.raises(UnknownTask, match="declares no task 't' of queue 'q'; it has known"):
        load(app, ndjson([{"n": 1}]), task="t")
