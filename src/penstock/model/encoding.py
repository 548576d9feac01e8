"""Values as JSON: arguments, results and progress on their way to the database.

What is accepted comes back: as itself where JSON has it, by the handler's annotations where it does not (datetime,
date, time, timedelta, UUID, Decimal, Enum, dataclasses, pydantic models). What would come back as something else
without a word is refused: NaN and infinities, sets, bytes, keys of a dict that are not text, half surrogate pairs.
The rare cases must not make the usual one slow: the value is written first, by msgspec, and looked at closely only
if what was written does not read back equal.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain, repeat
from operator import eq
from typing import Any
from uuid import UUID

import msgspec

from penstock.errors import InvalidInput
from penstock.model.checks import ARGS_BYTES
from penstock.model.error_text import summarize

__all__ = [
    "MOST_DEPTH",
    "encode_arguments",
    "encode_many_scalars",
    "encode_result",
    "encode_scalars",
    "encode_value",
    "have_any_names",
    "have_length",
    "have_names",
    "have_scalars",
]

MOST_DEPTH = 100

# Values that hold no others; of them only a float can be lost.
_SCALARS = frozenset({str, int, float, bool, type(None), datetime, date, time, timedelta, UUID, Decimal})


def encode_arguments(arguments: dict[str, Any]) -> bytes:
    """The arguments of a job as a JSON object, or `InvalidInput` naming the argument that cannot be one."""
    try:
        raw = _encode(arguments)
    except Exception:  # A model's own code may raise anything while it is written.
        for name, value in arguments.items():
            encode_value(name, value)
            encode_value(name, name)
        raise _too_deep("args") from None
    if _SCALARS.issuperset(map(type, arguments.values())):
        # A float that is no number is written as null.
        if raw.find(b"null") >= 0:  # `in` is slower: it tries the pattern as a number first
            _refuse_losses_in(arguments)
    elif raw.count(b"{") + raw.count(b"[") > MOST_DEPTH or not _reads_back(raw, arguments):
        _refuse_losses_in(arguments)
    if len(raw) > ARGS_BYTES:
        raise _too_long("args", len(raw))
    return raw


def encode_many_scalars(rows: list[dict[str, Any]], names: frozenset[str]) -> list[bytes] | None:
    """Arguments of many jobs at once, or None where any of them needs a closer look.

    The fast way for what is most common: every row has just these names and plain values, none of them null.
    """
    return encode_scalars(rows) if have_names(rows, names) and have_scalars(rows) else None


def have_length(rows: list[dict[str, Any]], length: int) -> bool:
    """Whether all rows are dicts of so many values."""
    return set(map(type, rows)) == {dict} and set(map(len, rows)) == {length}


def have_names(rows: list[dict[str, Any]], names: frozenset[str]) -> bool:
    """Whether all rows are dicts with just these names."""
    return set(map(type, rows)) == {dict} and all(map(eq, map(dict.keys, rows), repeat(names)))


def have_any_names(rows: list[dict[str, Any]]) -> bool:
    """Whether all rows are dicts, with names that are text."""
    return set(map(type, rows)) == {dict} and {str}.issuperset(map(type, chain.from_iterable(rows)))


def have_scalars(rows: list[dict[str, Any]]) -> bool:
    """Whether all values are plain ones."""
    return _SCALARS.issuperset(map(type, chain.from_iterable(map(dict.values, rows))))


def encode_scalars(rows: list[dict[str, Any]]) -> list[bytes] | None:
    """Rows of plain values as JSON, or None where one of them needs a closer look."""
    try:
        lines = _encode_lines(rows)
    except Exception:  # Encoded one by one, the row that raised is named.
        return None
    encoded = lines.split(b"\n")
    encoded.pop()
    if len(encoded) != len(rows) or lines.find(b"null") >= 0 or max(map(len, encoded), default=0) > ARGS_BYTES:
        return None
    return encoded


def encode_value(field: str, value: object) -> bytes:
    """Any value as JSON, by the same rules; `field` is what a refusal names."""
    if value is None:
        return b"null"
    try:
        raw = _encode(value)
    except InvalidInput as error:
        raise InvalidInput(field, error.problem) from None
    except UnicodeEncodeError:
        raise InvalidInput(field, "it holds half of a surrogate pair, which is not text; remove it") from None
    except RecursionError:
        raise _too_deep(field) from None
    except Exception as error:
        raise InvalidInput(
            field, f"it cannot be written as JSON ({summarize(error)!a:.200}); pass plain values"
        ) from error
    if raw.count(b"{") + raw.count(b"[") > MOST_DEPTH or not _reads_back(raw, value):
        _refuse_losses(field, value)
    if len(raw) > ARGS_BYTES:
        raise _too_long(field, len(raw))
    return raw


def encode_result(value: object) -> bytes:
    """What a handler returned, as JSON."""
    return encode_value("result", value)


def _too_long(field: str, size: int) -> InvalidInput:
    return InvalidInput(
        field, f"{size} bytes of JSON is too long; give at most {ARGS_BYTES}, or store it and pass where"
    )


def _too_deep(field: str) -> InvalidInput:
    return InvalidInput(field, f"it is nested too deeply; give at most {MOST_DEPTH} levels")


def _plain(value: object) -> object:
    """What msgspec does not know itself, as something it does."""
    dump = getattr(type(value), "model_dump_json", None)
    if dump is not None:
        # By alias, because that is what the model reads by default.
        raw: bytes = dump(value, by_alias=True).encode()
        msgspec.json.decode(raw)
        return msgspec.Raw(raw)
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Enum):
        return value.value
    raise InvalidInput(
        "value", f"{type(value).__name__} is not JSON; pass plain values, a dataclass or a pydantic model"
    )


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_encode = _encoder.encode
_encode_lines = _encoder.encode_lines
_decode = msgspec.json.Decoder().decode


def _reads_back(raw: bytes, value: object) -> bool:
    try:
        return bool(_decode(raw) == value)
    except Exception:  # A value's own comparison may raise anything.
        return False


def _refuse_losses_in(arguments: dict[str, Any]) -> None:
    for name, value in arguments.items():
        _refuse_losses(name, value)


def _refuse_losses(field: str, value: object) -> None:
    """Refuse, by its path, the first part of a value that JSON would change without a word."""
    # Not recursive: a value may be nested deeper than Python's own stack.
    waiting: list[tuple[str, object, int, bool]] = [(field, value, 1, False)]
    while waiting:
        path, part, depth, is_typed = waiting.pop()
        if depth > MOST_DEPTH:
            raise _too_deep(field)
        if isinstance(part, float) and not math.isfinite(part):
            raise InvalidInput(path, f"{part} is not JSON; pass None, or text")
        if not is_typed and isinstance(part, (set, frozenset)):
            raise InvalidInput(path, "a set would come back as a list; pass sorted(value)")
        if not is_typed and isinstance(part, (bytes, bytearray, memoryview)):
            raise InvalidInput(path, "bytes would come back as text; pass text, such as base64")
        waiting += [(name, inner, depth + 1, typed) for name, inner, typed in _parts(path, part, is_typed)]


def _parts(path: str, part: object, is_typed: bool) -> Iterable[tuple[str, object, bool]]:
    """What a value is made of. Inside a dataclass or a model the types are declared, so sets and bytes come back."""
    if isinstance(part, (str, int, float, Enum)):
        return []
    if isinstance(part, dict):
        for name in part:
            if not isinstance(name, str) and not is_typed:
                raise InvalidInput(path, f"the key {name!a:.60} is not text and would come back as text; pass str keys")
        return [(f"{path}.{name}", inner, is_typed) for name, inner in part.items()]
    if isinstance(part, (list, tuple, set, frozenset)):
        return [(f"{path}[{index}]", inner, is_typed) for index, inner in enumerate(part)]
    if dataclasses.is_dataclass(part):
        return [(f"{path}.{f.name}", getattr(part, f.name, None), True) for f in dataclasses.fields(part)]
    names = getattr(type(part), "__struct_fields__", None) or getattr(type(part), "model_fields", None)
    if names is not None:
        return [(f"{path}.{name}", getattr(part, name, None), True) for name in names]
    return []
