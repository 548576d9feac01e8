"""Spark's types as those of Arrow, by which a load knows its columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from penstock.errors import InvalidInput

__all__ = ["read_variant", "to_schema"]

_ARROW: dict[type[t.DataType], pa.DataType] = {
    **dict.fromkeys((t.StringType, t.CharType, t.VarcharType), pa.string()),
    t.BooleanType: pa.bool_(),
    t.ByteType: pa.int8(),
    t.ShortType: pa.int16(),
    t.IntegerType: pa.int32(),
    t.LongType: pa.int64(),
    t.FloatType: pa.float32(),
    t.DoubleType: pa.float64(),
    t.DateType: pa.date32(),
    t.TimestampType: pa.timestamp("us", tz="UTC"),
    t.TimestampNTZType: pa.timestamp("us"),
    t.DayTimeIntervalType: pa.duration("us"),
    t.BinaryType: pa.binary(),
    t.NullType: pa.null(),
    # As Spark itself writes one: what tells it from a struct is said of its second field.
    t.VariantType: pa.struct([
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]),
    **({t.TimeType: pa.time64("ns")} if hasattr(t, "TimeType") else {}),
}  # fmt: skip


def to_schema(schema: t.StructType) -> pa.Schema:
    """A DataFrame's columns as Arrow has them; InvalidInput for one that cannot be written."""
    return pa.schema([pa.field(field.name, _to_arrow(field.name, field.dataType)) for field in schema.fields])


def read_variant(value: dict[str, bytes] | None) -> Any:
    """What a variant holds."""
    return None if value is None else t.VariantVal(value["value"], value["metadata"]).toPython()


def _to_arrow(name: str, kind: t.DataType) -> pa.DataType:
    if isinstance(kind, t.ArrayType):
        return pa.list_(_to_arrow(name, kind.elementType))
    if isinstance(kind, t.MapType):
        return pa.map_(_to_arrow(name, kind.keyType), _to_arrow(name, kind.valueType))
    if isinstance(kind, t.StructType):
        return pa.struct([pa.field(field.name, _to_arrow(name, field.dataType)) for field in kind.fields])
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if type(kind) in _ARROW:
        return _ARROW[type(kind)]
    raise InvalidInput(name, f"{kind.simpleString()} cannot be an argument; cast it to string")
