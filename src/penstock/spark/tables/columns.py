"""The columns of the tables that Spark can read, with those of history, which the lake has as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.errors import InvalidInput
from penstock.spark.data_source.error_codes import encode_errors

if TYPE_CHECKING:
    from penstock.storage.history.bulk import Table

__all__ = ["HISTORY", "MORE_HISTORY", "read_table_name", "table_schema"]

_JOB: dict[str, DataType] = {
    "id": LongType(),
    "queue": StringType(),
    "partition": StringType(),
    "task": StringType(),
    "args": StringType(),
    "key": StringType(),
    "tenant": StringType(),
    "load": StringType(),
}
HISTORY: dict[str, DataType] = {
    **_JOB,
    "outcome": StringType(),
    "attempt": IntegerType(),
    "result": StringType(),
    "error": StringType(),
    "enqueued_at": TimestampType(),
    "started_at": TimestampType(),
    "finished_at": TimestampType(),
    "worker": StringType(),
}
# What history has besides, for those who name it: `attributes` (JSON: created_by, tags, parents, idempotency key and
# edits), `failures` (a JSON array), both as text, `key_bytes` of keys that are no text, `day` of the end in UTC.
MORE_HISTORY: dict[str, DataType] = {
    "priority": IntegerType(),
    "attributes": StringType(),
    "failures": StringType(),
    "key_bytes": BinaryType(),
    "day": DateType(),
}
_COLUMNS: dict[Table, dict[str, DataType]] = {
    "finished": HISTORY,
    "jobs": {
        **_JOB,
        "state": StringType(),
        "attempt": IntegerType(),
        "priority": IntegerType(),
        "enqueued_at": TimestampType(),
        "run_at": TimestampType(),
        "started_at": TimestampType(),
        "worker": StringType(),
    },
    "failures": {
        "id": LongType(),
        "attempt": IntegerType(),
        "error": StringType(),
        "at": TimestampType(),
        "worker": StringType(),
    },
}
_MORE: dict[Table, dict[str, DataType]] = {
    "finished": MORE_HISTORY,
    "jobs": {"key_bytes": BinaryType()},
    "failures": {},
}


def table_schema(options: Mapping[str, str]) -> StructType:
    """The columns that the options ask for."""
    with encode_errors():
        table = read_table_name(options)
        known = {**_COLUMNS[table], **_MORE[table]}
        names = options.get("columns")
        chosen = list(_COLUMNS[table]) if names is None else [name.strip() for name in names.split(",")]
        for name in chosen:
            if name not in known:
                raise InvalidInput("columns", f"table {table!r} has no column {name!r}; it has {', '.join(known)}")
        if len(set(chosen)) < len(chosen):
            raise InvalidInput("columns", "a column is named twice; name each once")
        return StructType([StructField(name, known[name]) for name in chosen])


def read_table_name(options: Mapping[str, str]) -> Table:
    """The table that the options name."""
    for name in _COLUMNS:
        if options.get("table") == name:
            return name
    raise InvalidInput("table", f"{options.get('table')!r:.200} is none of {', '.join(_COLUMNS)}")
