"""Arrow's many types as the few that loads know, which are Spark's: a value stays the same, or it is refused."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as t

from penstock.errors import InvalidInput
from penstock.loading.column_types import is_text, type_name
from penstock.model.checks import shown

__all__ = ["plain_array", "plain_schema"]

# Who sends a CSV has never heard of SQL's.
_WORDS = {pa.int64(): "integer of 64 bits", pa.float64(): "number"}


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a body as a load knows them; what it does not know stays as it is, and is refused as such."""
    return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if t.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if t.is_large_string(kind) or t.is_string_view(kind):
        return pa.string()
    if t.is_large_binary(kind) or t.is_binary_view(kind) or t.is_fixed_size_binary(kind):
        return pa.binary()
    if t.is_unsigned_integer(kind):
        return pa.int64()
    if t.is_float16(kind):
        return pa.float32()
    if t.is_date(kind):
        return pa.date32()
    if t.is_time(kind):
        return pa.time64("us")
    if t.is_duration(kind):
        return pa.duration("us")
    if t.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if t.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if t.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in kind.fields])
    return kind


def plain_array(name: str, column: pa.Array, kind: pa.DataType, first_row: int) -> pa.Array:
    """A column of the body as one of that type; InvalidInput, which names the row, where a value would be lost."""
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowNotImplementedError:
        raise InvalidInput(name, f"{column.type} cannot be an argument; cast it to string") from None
    except pa.ArrowInvalid:
        row = _find_misfit(column, kind)
        # Of a CSV, where all is text, it is a column that has to be something else.
        remedy = "mend it" if is_text(column.type) else "mend it, or send text"
        raise InvalidInput(
            name,
            f"row {first_row + row} has {_show(column[row])}, which is no {_WORDS.get(kind) or type_name(kind)}. "
            f"Nothing was enqueued; {remedy}",
        ) from None


def _find_misfit(column: pa.Array, kind: pa.DataType) -> int:
    """The first row whose value does not become that type: halves are tried, so that few values are looked at alone."""
    start, end = 0, len(column)
    while end - start > 1:
        middle = (start + end) // 2
        try:
            column.slice(start, middle - start).cast(kind)
            start = middle
        except pa.ArrowInvalid:
            end = middle
    return start


def _show(value: pa.Scalar) -> str:
    try:
        return shown(value.as_py())
    except (ValueError, OverflowError):
        return "a value"
