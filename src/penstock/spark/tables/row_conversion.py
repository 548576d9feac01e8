"""Rows from PostgreSQL as Spark wants them: exactly the columns and types of a schema, keys as text.

A key is bytes. It is shown as text where it is UTF-8, otherwise as \\x and hex digits, and then `key_bytes` has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["convert_rows"]


def convert_rows(batch: pa.RecordBatch, schema: StructType) -> pa.RecordBatch:
    """A batch with the columns of a schema."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    text: pa.Array | None = None
    raw: pa.Array | None = None
    if "key" in batch.schema.names:
        text, raw = _split_keys(batch.column("key"))
    columns = []
    for field in wanted:
        column = {"key": text, "key_bytes": raw}.get(field.name)
        if column is None:
            column = batch.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _split_keys(keys: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Keys as text, and as bytes where they are none."""
    try:
        return keys.cast(pa.string()), pa.nulls(len(keys), pa.binary())
    except pa.ArrowInvalid:
        shown: list[str | None] = []
        raw: list[bytes | None] = []
        for key in keys.to_pylist():
            try:
                shown.append(None if key is None else key.decode())
                raw.append(None)
            except UnicodeDecodeError:
                shown.append("\\x" + key.hex())
                raw.append(key)
        return pa.array(shown, pa.string()), pa.array(raw, pa.binary())
