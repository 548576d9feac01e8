"""What a load is to do, worked out once on the driver and sent to every task: where, which columns mean what.

Columns of reserved names set a job's options; the column that `key` names is its key and an argument; every other
column is an argument. With a column `args` (a JSON object as text, a struct or a map) there are no others.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import InvalidInput
from penstock.model.checks import checked_count, checked_name
from penstock.model.trace_context import TRACEPARENT, TRACESTATE, checked_trace
from penstock.shards.load_commit import Published
from penstock.shards.publishing import find_published
from penstock.shards.shard_urls import ShardUrls, find_shards
from penstock.spark.data_source.options import refuse_unknown
from penstock.spark.loading.column_types import argument_problem, key_problem, reserved_problem
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.connection.urls import checked_urls

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["DECLARED", "RESERVED", "RUN", "LoadPlan", "plan_load"]

log = logging.getLogger("penstock")

RESERVED = ("task", "args", "key", "priority", "run_at", "idempotency_key", "tenant")
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

    shards: ShardUrls
    name: str
    queue: str
    # Of the queue's key map; None for a plain queue, which routes by none.
    epoch: int | None
    # Partition by partition: its id and its shard.
    partition_ids: tuple[int, ...]
    partition_shards: tuple[int, ...]
    # The shards over which idempotency keys are spread.
    homes: tuple[int, ...]
    schema: StructType
    task: str | None
    key: str | None
    order_by: tuple[str, ...]
    connections: int
    bad_rows: str | None
    is_stream: bool
    # Drawn by `ps.load`; published with the load, it says afterwards which run's load it was.
    run: str | None
    published: Published | None
    # By task, for rows that name theirs: why these columns do not fit it, as field and problem, or None where they do.
    # None where it is not known.
    declared: dict[str, tuple[str, str] | None] | None = None
    # What is stored of the trace context of whoever loads, if there is one.
    trace: Mapping[str, str] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The columns that are arguments, each by its own name."""
        return tuple(name for name in self.columns if name not in RESERVED or name == self.key)


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
    is_traced = TRACEPARENT in options or TRACESTATE in options
    trace = checked_trace(options.get(TRACEPARENT), options.get(TRACESTATE)) if is_traced else None
    _check_columns(schema, task, key)
    order_by = tuple(part.strip() for part in options.get("order_by", "").split(",") if part.strip())
    for column in order_by:
        if column not in schema.names:
            raise InvalidInput("order_by", f"there is no column {column!r}; there are {_join_names(schema.names)}")
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
    if entry.rules.has_key_rule and key is None and "key" not in schema.names:
        log.warning("queue %r has rules about keys, and no column is the key: its jobs have no order", queue)
    return LoadPlan(
        shards=urls,
        name=name,
        queue=queue,
        epoch=entry.epoch if entry.is_owned else None,
        partition_ids=entry.partition_ids[: entry.partition_count],
        partition_shards=entry.partition_shards[: entry.partition_count],
        homes=entry.homes,
        schema=schema,
        task=task,
        key=key,
        order_by=order_by,
        connections=_read_connections(options.get("connections", "4")),
        bad_rows=_read_bad_rows(options.get("bad_rows", "fail")),
        is_stream=is_stream,
        run=options.get(RUN),
        published=published,
        declared=_decode_declared(options[DECLARED]) if DECLARED in options else None,
        trace=trace,
    )


def _check_columns(schema: StructType, task: str | None, key: str | None) -> None:
    names = schema.names
    if not names:
        # Spark counts no rows of a batch without columns: nothing would be loaded, and the name be used up.
        raise InvalidInput("columns", "there are none; for jobs without arguments give a column 'args' that holds '{}'")
    for name in names:
        if name not in RESERVED and name != key and name.lower() in RESERVED:
            raise InvalidInput(
                name, f"it differs from the reserved column {name.lower()!r} only by case; write it so, or rename it"
            )
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(twice, "two columns have this name; rename one")
    if task is None and "task" not in names:
        raise InvalidInput("task", "there is none; give task= (of a writer option('task', ...)), or a column 'task'")
    if task is not None and "task" in names:
        raise InvalidInput("task", "it is given as an option and as a column; drop one")
    if key is not None and key not in names:
        raise InvalidInput("key", f"there is no column {key!r}; there are {_join_names(names)}")
    if key is not None and key != "key" and "key" in names:
        raise InvalidInput("key", f"it is given as a column and as the option {key!r}; drop one")
    others = [name for name in names if name not in RESERVED and name != key]
    if "args" in names and others:
        raise InvalidInput(
            others[0], f"with a column 'args' the others are {_join_names(RESERVED)}; put it into 'args'"
        )
    for field in schema.fields:
        if problem := argument_problem(field.dataType):
            raise InvalidInput(field.name, f"{problem}; cast it to string")
        if field.name == (key or "key") and (problem := key_problem(field.dataType)):
            raise InvalidInput("key", f"column {field.name!r} {problem}")
        if field.name in RESERVED and field.name != key and (problem := reserved_problem(field.name, field.dataType)):
            raise InvalidInput(field.name, f"the column {problem}")


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


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
