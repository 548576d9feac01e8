"""What a column may be, by its type in Arrow: a key, an option or an argument; and what an argument becomes as JSON.

| type                               | JSON                                | a handler's annotation |
| string                             | text                                | str                    |
| boolean, integers, float, double   | as they are; no NaN, no infinity    | bool, int, float       |
| decimal                            | text, all digits kept               | Decimal                |
| date, timestamp, timestamp_ntz     | text as in ISO 8601; timestamps UTC | date, datetime         |
| time, interval day to second       | text as in ISO 8601                 | time, timedelta        |
| binary                             | text, base64                        | bytes                  |
| array, struct                      | array, object                       | list, a dataclass      |
| map                                | object, its keys as text            | dict                   |
| variant (only Spark has it)        | what it holds                       | anything               |
| void                               | null                                | None                   |

They are the rules of `enqueue`, so that a handler sees the same whoever enqueued. Messages call types by these names,
which are Spark's and those of SQL.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import types as t

__all__ = [
    "RESERVED_MEANINGS",
    "Convert",
    "argument_converter",
    "argument_problem",
    "is_text",
    "key_problem",
    "reserved_problem",
    "type_name",
]

Convert = Callable[[Any], Any]

_NAMES: dict[pa.DataType, str] = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.duration("us"): "interval day to second",
    pa.null(): "void",
}
# What a column of a reserved name has to hold.
RESERVED_MEANINGS = {
    "task": "text",
    "args": "a JSON object as text, a struct or a map",
    "key": "text, bytes or a whole number",
    "priority": "a whole number from 0 to 9",
    "run_at": "a timestamp",
    "idempotency_key": "text",
    "tenant": "text",
}


def is_text(kind: pa.DataType) -> bool:
    """Whether its values are text."""
    return bool(t.is_string(kind) or t.is_large_string(kind))


def type_name(kind: pa.DataType) -> str:
    """What messages call a type."""
    if kind in _NAMES:
        return _NAMES[kind]
    if t.is_timestamp(kind) and kind.tz is not None:
        return "timestamp"
    if t.is_time(kind):
        return "time"
    if t.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if _is_variant(kind):
        return "variant"
    if t.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if t.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if t.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{type_name(field.type)}' for field in kind.fields)}>"
    return str(kind)


def argument_problem(kind: pa.DataType) -> str | None:
    """Why a column of this type cannot be written, or None."""
    if t.is_list(kind):
        return argument_problem(kind.value_type)
    if t.is_map(kind):
        return argument_problem(kind.key_type) or argument_problem(kind.item_type)
    if t.is_struct(kind):
        return next(filter(None, (argument_problem(field.type) for field in kind.fields)), None)
    is_known = kind in _NAMES or t.is_decimal(kind) or t.is_time(kind) or (t.is_timestamp(kind) and kind.unit == "us")
    return None if is_known else f"{type_name(kind)} cannot be an argument"


def key_problem(kind: pa.DataType) -> str | None:
    """Why a column of this type cannot be the key, or None."""
    if is_text(kind) or t.is_integer(kind) or t.is_binary(kind):
        return None
    return f"is {type_name(kind)}; a key is text, bytes or a whole number: cast it to string"


def reserved_problem(name: str, kind: pa.DataType) -> str | None:
    """Why a reserved column, other than the key, cannot be of this type, or None."""
    if name == "args":
        is_allowed = is_text(kind) or t.is_map(kind) or (t.is_struct(kind) and not _is_variant(kind))
    elif name == "priority":
        is_allowed = t.is_integer(kind)
    elif name == "run_at":
        is_allowed = t.is_timestamp(kind) and kind.tz is not None
    else:
        is_allowed = name == "key" or is_text(kind)
    return None if is_allowed or t.is_null(kind) else f"is {type_name(kind)}; it must be {RESERVED_MEANINGS[name]}"


def argument_converter(kind: pa.DataType, read_variant: Convert | None = None) -> Convert | None:
    """How a value of this type, as Arrow gives it, becomes one that is written as JSON; None: it can be as it is.

    `read_variant` makes one of Spark's variants a value.
    """
    if t.is_binary(kind):
        return _to_base64
    if _is_variant(kind):
        return read_variant
    if t.is_list(kind):
        return _array_converter(argument_converter(kind.value_type, read_variant))
    if t.is_map(kind):
        return _map_converter(
            argument_converter(kind.key_type, read_variant), argument_converter(kind.item_type, read_variant)
        )
    if t.is_struct(kind):
        return _struct_converter({field.name: argument_converter(field.type, read_variant) for field in kind.fields})
    return None


def _is_variant(kind: pa.DataType) -> bool:
    """Whether it is the struct that Spark writes a variant as."""
    if not t.is_struct(kind):
        return False
    return any(field.name == "metadata" and b"variant" in (field.metadata or {}) for field in kind.fields)


def _to_base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _array_converter(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: None if values is None else [convert(value) for value in values]


def _map_converter(key: Convert | None, item: Convert | None) -> Convert:
    convert_key, convert = key or _keep, item or _keep
    return lambda pairs: (
        None if pairs is None else {_to_text(convert_key(name)): convert(value) for name, value in pairs}
    )


def _struct_converter(converters: dict[str, Convert | None]) -> Convert | None:
    if not any(converters.values()):
        return None

    def convert(value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        return {name: inner if (each := converters[name]) is None else each(inner) for name, inner in value.items()}

    return convert


def _keep(value: Any) -> Any:
    return value


def _to_text(name: Any) -> str:
    """A map's key as JSON needs it."""
    if isinstance(name, str):
        return name
    if isinstance(name, bool):
        return str(name).lower()
    return name.isoformat() if hasattr(name, "isoformat") else str(name)
