"""Which of Spark's types may be a key, an option or an argument, and what an argument becomes as JSON.

| Spark                              | JSON                                | a handler's annotation |
| string, char, varchar              | text                                | str                    |
| boolean, integers, float, double   | as they are; no NaN, no infinity    | bool, int, float       |
| decimal                            | text, all digits kept               | Decimal                |
| date, timestamp, timestamp_ntz     | text as in ISO 8601; timestamps UTC | date, datetime         |
| time, interval day to second       | text as in ISO 8601                 | time, timedelta        |
| binary                             | text, base64                        | bytes                  |
| array, struct                      | array, object                       | list, a dataclass      |
| map                                | object, its keys as text            | dict                   |
| variant                            | what it holds                       | anything               |
| null                               | null                                | None                   |

They are the rules of `enqueue`, so that a handler sees the same whoever enqueued.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from pyspark.sql import types as t

__all__ = ["argument_converter", "argument_problem", "key_problem", "reserved_problem"]

_INTEGERS = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
_TEXTS = (t.StringType, t.CharType, t.VarcharType)
_SCALARS = (
    *_TEXTS,
    *_INTEGERS,
    t.BooleanType,
    t.FloatType,
    t.DoubleType,
    t.DecimalType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
    t.DayTimeIntervalType,
    t.BinaryType,
    t.NullType,
    t.VariantType,
    *((t.TimeType,) if hasattr(t, "TimeType") else ()),
)

Convert = Callable[[Any], Any]


def argument_problem(kind: t.DataType) -> str | None:
    """Why a column of this type cannot be written, or None."""
    if isinstance(kind, t.ArrayType):
        return argument_problem(kind.elementType)
    if isinstance(kind, t.MapType):
        return argument_problem(kind.keyType) or argument_problem(kind.valueType)
    if isinstance(kind, t.StructType):
        return next(filter(None, (argument_problem(field.dataType) for field in kind.fields)), None)
    return None if isinstance(kind, _SCALARS) else f"{kind.simpleString()} cannot be an argument"


def key_problem(kind: t.DataType) -> str | None:
    """Why a column of this type cannot be the key, or None."""
    if isinstance(kind, (*_TEXTS, *_INTEGERS, t.BinaryType)):
        return None
    return f"is {kind.simpleString()}; a key is text, bytes or a whole number: cast it to string"


def reserved_problem(name: str, kind: t.DataType) -> str | None:
    """Why a reserved column cannot be of this type, or None."""
    allowed: dict[str, tuple[tuple[type[t.DataType], ...], str]] = {
        "task": (_TEXTS, "text"),
        "args": ((*_TEXTS, t.StructType, t.MapType), "a JSON object as text, a struct or a map"),
        "priority": (_INTEGERS, "a whole number from 0 to 9"),
        "run_at": ((t.TimestampType,), "a timestamp"),
        "idempotency_key": (_TEXTS, "text"),
        "tenant": (_TEXTS, "text"),
    }
    if name not in allowed or isinstance(kind, (*allowed[name][0], t.NullType)):
        return None
    return f"is {kind.simpleString()}; it must be {allowed[name][1]}"


def argument_converter(kind: t.DataType) -> Convert | None:
    """How a value of this type, as Arrow gives it, becomes one that is written as JSON; None: it can be as it is."""
    if isinstance(kind, t.BinaryType):
        return _to_base64
    if isinstance(kind, t.VariantType):
        return _to_variant_value
    if isinstance(kind, t.ArrayType):
        return _array_converter(argument_converter(kind.elementType))
    if isinstance(kind, t.MapType):
        return _map_converter(kind)
    if isinstance(kind, t.StructType):
        return _struct_converter(kind)
    return None


def _to_base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _to_variant_value(value: dict[str, bytes] | None) -> Any:
    return None if value is None else t.VariantVal(value["value"], value["metadata"]).toPython()


def _array_converter(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: None if values is None else [convert(value) for value in values]


def _map_converter(kind: t.MapType) -> Convert:
    key = argument_converter(kind.keyType) or (lambda name: name)
    convert = argument_converter(kind.valueType) or (lambda value: value)
    return lambda pairs: None if pairs is None else {_to_text(key(name)): convert(value) for name, value in pairs}


def _struct_converter(kind: t.StructType) -> Convert | None:
    converters = {field.name: argument_converter(field.dataType) for field in kind.fields}
    if not any(converters.values()):
        return None

    def convert(value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        return {name: inner if (each := converters[name]) is None else each(inner) for name, inner in value.items()}

    return convert


def _to_text(name: Any) -> str:
    """A map's key as JSON needs it."""
    if isinstance(name, str):
        return name
    if isinstance(name, bool):
        return str(name).lower()
    return name.isoformat() if hasattr(name, "isoformat") else str(name)
