"""What a load is to do, worked out once on the driver and sent to every task."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import InvalidInput
from penstock.loading.columns import LoadColumns, check_columns, join_names
from penstock.loading.destination import Destination, find_destination
from penstock.model.checks import checked_count, checked_name
from penstock.model.trace_context import TRACEPARENT, TRACESTATE, checked_trace
from penstock.shards.load_commit import Published
from penstock.shards.publishing import find_published
from penstock.shards.shard_urls import find_shards
from penstock.spark.data_source.options import refuse_unknown
from penstock.spark.loading.column_types import to_schema
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.connection.urls import checked_urls

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["DECLARED", "RUN", "LoadPlan", "plan_load"]

# The option by which `ps.load` tells its own run from others of the same name; users do not give it.
RUN = "run"
# The option by which `ps.load` tells which tasks the app declares, and what of these columns does not fit each of them,
# as JSON; users do not give it.
DECLARED = "declared"
MOST_CONNECTIONS = 100
_decode_declared = msgspec.json.Decoder(dict[str, tuple[str, str] | None]).decode
_OPTIONS = frozenset(
    {"url", "queue", "task", "key", "load", "order_by", "connections", "bad_rows", TRACEPARENT, TRACESTATE}
)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A checked load. `name` is empty for a stream that is named after its query."""

    name: str
    destination: Destination
    columns: LoadColumns
    order_by: tuple[str, ...]
    bad_rows: str | None
    is_stream: bool
    # Drawn by `ps.load`; published with the load, it says afterwards which run's load it was.
    run: str | None
    published: Published | None
    # What is stored of the trace context of whoever loads, if there is one.
    trace: Mapping[str, str] | None = None


def plan_load(options: Mapping[str, str], schema: StructType, overwrite: bool, *, is_stream: bool) -> LoadPlan:
    """Check the options of a write and its columns, and look the queue up."""
    known = (_OPTIONS - {"load", TRACEPARENT, TRACESTATE}) | {"sink"} if is_stream else _OPTIONS
    given_by_user = [name for name in options if name.lower() not in (RUN, DECLARED)]
    refuse_unknown(given_by_user, known, "a stream" if is_stream else "a load")
    if overwrite:
        raise InvalidInput("mode", "a queue cannot be overwritten; write .mode('append')")
    checked_urls(options.get("url"))
    queue = checked_name("queue", options.get("queue"))
    task = None if "task" not in options else checked_name("task", options["task"])
    key = options.get("key")
    given = options.get("sink" if is_stream else "load")
    if not schema.names:
        # Spark counts no rows of a batch without columns: nothing would be loaded, and the name be used up.
        raise InvalidInput("columns", "there are none; for jobs without arguments give a column 'args' that holds '{}'")
    is_traced = TRACEPARENT in options or TRACESTATE in options
    trace = checked_trace(options.get(TRACEPARENT), options.get(TRACESTATE)) if is_traced else None
    columns = LoadColumns(
        to_schema(schema), task, key, _decode_declared(options[DECLARED]) if DECLARED in options else None
    )
    check_columns(columns.schema, task, key)
    order_by = tuple(part.strip() for part in options.get("order_by", "").split(",") if part.strip())
    for column in order_by:
        if column not in columns.names:
            raise InvalidInput("order_by", f"there is no column {column!r}; there are {join_names(schema.names)}")
    if given is not None:
        name = checked_name("sink" if is_stream else "load", given)
    else:
        name = "" if is_stream else f"load-{secrets.token_hex(8)}"
    while True:
        urls = find_shards(options.get("url"))
        with urls.open() as databases:
            entry = databases.read(lambda connection: find_queue(connection, queue))
            published = None if is_stream else find_published(databases, name, queue, 0, is_stream=False)
        if urls.urls.keys() >= set(entry.partition_shards):
            break
        # A shard has joined after the URLs were read and before the queue was: both are read again.
    connections = _read_connections(options.get("connections", "4"))
    return LoadPlan(
        name=name,
        destination=find_destination(urls, queue, entry, connections, has_key=columns.has_key),
        columns=columns,
        order_by=order_by,
        bad_rows=_read_bad_rows(options.get("bad_rows", "fail")),
        is_stream=is_stream,
        run=options.get(RUN),
        published=published,
        trace=trace,
    )


def _read_connections(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise InvalidInput("connections", f"a whole number from 1 to {MOST_CONNECTIONS} is needed, not {text!r:.60}")
    return checked_count("connections", int(text), most=MOST_CONNECTIONS)


def _read_bad_rows(text: str) -> str | None:
    if text == "fail":
        return None
    if not text.strip():
        raise InvalidInput("bad_rows", "give 'fail', or the folder that is to receive them")
    return text if "://" in text else str(Path(text).absolute())
