"""Single values of rows: as Python objects, as JSON, and as they are shown of a bad row."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.model.checks import ARGS_BYTES
from penstock.model.encoding import encode_arguments

__all__ = ["check_object", "encode_row", "show_row", "to_python"]

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def to_python(name: str, value: pa.Scalar) -> Any:
    """A value as a Python object; InvalidInput, with the column's name, where there is none."""
    try:
        return value.as_py()
    except UnicodeDecodeError:
        raise InvalidInput(name, "it holds text that is not UTF-8; decode it, or give it as binary") from None
    except (OverflowError, ValueError):
        raise InvalidInput(name, "a date or time beyond the years 1 to 9999; give one within them, or text") from None


def show_row(row: pa.StructScalar) -> dict[str, Any]:
    """A row to be shown; what Python cannot hold is shown as Arrow writes it."""
    shown: dict[str, Any] = {}
    for name, value in row.items():
        try:
            shown[name] = value.as_py()
        except (OverflowError, ValueError):
            shown[name] = _format_as_arrow(value)
    return shown


def _format_as_arrow(value: pa.Scalar) -> str:
    try:
        if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
            return repr(value.cast(pa.binary()).as_py())
        return str(value.cast(pa.string()).as_py())
    except (pa.ArrowException, ValueError):
        return str(value.type)


def encode_row(row: dict[str, Any] | None) -> bytes:
    """A row's arguments as JSON."""
    if row is None:
        raise InvalidInput("args", "it is null; give {} where there are none")
    return encode_arguments(row)


def check_object(text: str | None) -> None:
    """Refuse what is no JSON object."""
    if text is None:
        raise InvalidInput("args", "it is null; give {} where there are none")
    if len(text) * 4 > ARGS_BYTES and len(text.encode()) > ARGS_BYTES:
        raise InvalidInput("args", f"{len(text.encode())} bytes of JSON is too long; give at most {ARGS_BYTES}")
    try:
        _decode_object(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput("args", f"a JSON object is needed: {error}") from None
