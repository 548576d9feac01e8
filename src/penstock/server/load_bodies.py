"""Loads over HTTP: a body of NDJSON, CSV, Parquet or Arrow becomes a load, once for its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from penstock.errors import InvalidInput
from penstock.model.records import record, record_type
from penstock.model.trace_context import trace_of_headers
from penstock.server.body_pipe import read_in_thread
from penstock.server.call import Call
from penstock.server.loading.content import find_format
from penstock.server.loading.load_request import LoadReceipt, LoadRequest, read_types
from penstock.server.loading.receive import receive_load
from penstock.server.operation import Answer, Operations
from penstock.server.problem import ProblemError
from penstock.shards.publishing import LoadNameTaken

__all__ = ["load_bodies"]

load_bodies = Operations()
MEDIA_TYPES = (
    "application/x-ndjson",
    "text/csv",
    "application/vnd.apache.arrow.stream",
    "application/vnd.apache.parquet",
)
Receipt: Any = record_type(LoadReceipt)


class LoadOptions(Struct, frozen=True, kw_only=True):
    """What a load is to do. `types` are those of a CSV's columns: column:number,column:integer."""

    task: str | None = None
    key: str | None = None
    order_by: str | None = None
    types: str | None = None
    rows: int | None = None


@load_bodies.add(
    "PUT",
    "/queues/{queue}/loads/{load}",
    may="produce",
    answers={200: Receipt, 201: Receipt},
    forms=dict.fromkeys(MEDIA_TYPES, (bytes,)),
)
async def put_load(call: Call, queue: str, load: str, query: LoadOptions) -> Answer:
    """Enqueue the rows of a body as a load: all of them at once when the body is whole, and once for its name.

    A name that was loaded before is answered with 200, and nothing is written. Columns are arguments, but for task,
    args, key, priority, run_at, idempotency_key and tenant.
    """
    content_type = call.headers.get("content-type", "")
    try:
        find_format(content_type)
    except InvalidInput as error:
        raise ProblemError("unsupported-media-type", error.problem, field=error.field) from error
    request = LoadRequest(
        queue=queue,
        name=load,
        content_type=content_type,
        content_encoding=call.headers.get("content-encoding"),
        task=query.task,
        key=query.key,
        order_by=query.order_by,
        types=None if query.types is None else read_types(query.types),
        rows=query.rows,
        trace=trace_of_headers(call.headers.get("traceparent"), call.headers.get("tracestate")),
    )
    if call.caller.tenant is not None:
        raise ProblemError("forbidden", "a tenant's token may not load: rows may name other tenants; enqueue them")

    def read(chunks: Iterator[bytes]) -> LoadReceipt:
        try:
            return receive_load(call.app, request, chunks)
        except LoadNameTaken as error:
            if call.caller.queues is not None and error.queue not in call.caller.queues:
                raise InvalidInput("load", "the name is taken; choose another name") from None
            raise

    receipt = await read_in_thread(call.services.loading, call.caller.name, call.body(), read)
    return Answer(record(receipt), 201 if receipt.is_new else 200)
