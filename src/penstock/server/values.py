"""Values as they come over HTTP: converted to typed ones, or refused with the name of the field."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import datetime
from typing import Annotated, Any, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from penstock.errors import InvalidInput
from penstock.model.job_state import State
from penstock.model.records import Base64

__all__ = ["Base64", "Instant", "decode_body", "decode_lines", "given_fields", "key_of", "make_ready", "parse_query"]

T = TypeVar("T")
# One without a zone is refused.
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
_AT = re.compile(r" - at `(?:key in )?\$?\.?([^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_NOT_AMONG = re.compile(r"Invalid enum value (.*)")
MOST_FIELDS = 1_000


def key_of(field: str, given: str | int | Base64 | None) -> str | bytes | int | None:
    """An ordering key as it was given."""
    if not isinstance(given, Base64):
        return given
    try:
        return base64.b64decode(given.base64, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(
            field, "it is no base64; write {'base64': '…'} with its usual alphabet and padding"
        ) from None


def make_ready(kind: Any) -> None:
    """Have msgspec learn a type that bodies or queries are read as, before there are threads.

    It learns a struct where that is first used, and runs Python meanwhile: another thread that then reads by the same
    struct takes it as it is, half learnt, and that ends the process with SIGSEGV (msgspec 0.22.0).
    """
    msgspec.json.Decoder(kind)


def decode_body(raw: bytes, kind: Any) -> Any:
    """A body of JSON as a value of that type."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise _told(error) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _no_json(error, "body", raw) from None


def decode_lines(raw: bytes, kind: type[T]) -> list[T]:
    """A body of NDJSON: a value on each line; a refusal names the line, counted from 1."""
    decoder = msgspec.json.Decoder(kind)
    found: list[T] = []
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if not line or line.isspace():
            continue
        try:
            found.append(decoder.decode(line))
        except msgspec.ValidationError as error:
            told = _told(error)
            raise InvalidInput(told.field, f"in line {number}: {told.problem}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _no_json(error, f"line {number}", line) from None
    return found


def parse_query(raw: bytes, kind: Any) -> Any:
    """A query as a struct; each name is given once, but for those of lists."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(raw),
            errors="strict",
            max_num_fields=MOST_FIELDS,
        )
    except (ValueError, UnicodeDecodeError):
        raise InvalidInput(
            "query", "it is not a query of UTF-8 text; write name=value&… with percent-encoding"
        ) from None
    types = {each.encode_name: each.type for each in msgspec.structs.fields(kind)}
    given: dict[str, Any] = {}
    for name, value in pairs:
        if _is_list(types.get(name)):
            given.setdefault(name, []).append(value)
        elif name in given:
            raise InvalidInput(name, "it is given twice; give it once")
        else:
            given[name] = value
    if unknown := [name for name in given if name not in types]:
        raise InvalidInput(unknown[0], f"there is no such option; it takes: {', '.join(types) or 'none'}")
    try:
        found = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _told(error) from None
    for each in msgspec.structs.fields(kind):
        # What is converted from text takes the word "null" for a null.
        if each.encode_name in given and getattr(found, each.name) is None:
            raise InvalidInput(each.encode_name, "null is no value here; leave it out")
    return found


def _is_list(kind: Any) -> bool:
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_origin(kind) is list


def _told(error: msgspec.ValidationError) -> InvalidInput:
    said = str(error)
    place = _AT.search(said)
    path = place[1] if place else ""
    problem = said[: place.start()] if place else said
    if unknown := _UNKNOWN.match(problem):
        return InvalidInput(_joined(path, unknown[1]), "there is no such field; leave it out, or see openapi.json")
    if missing := _MISSING.match(problem):
        return InvalidInput(_joined(path, missing[1]), "it is missing; give it")
    if path == "state" and (unknown := _NOT_AMONG.match(problem)):
        return InvalidInput(path, f"there is no state {unknown[1]}; give {', '.join(State)} (dead letters are failed)")
    problem = problem.replace("`", "")
    return InvalidInput(path or "body", f"{problem[:1].lower()}{problem[1:]}; give what openapi.json says")


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _no_json(error: Exception, field: str, raw: bytes) -> InvalidInput:
    if not raw.strip():
        return InvalidInput(field, "it is empty; send JSON")
    if isinstance(error, RecursionError):
        return InvalidInput(field, "it is nested too deeply; give at most 100 levels")
    try:
        raw.decode()
    except UnicodeDecodeError as bad:
        return InvalidInput(field, f"it is no UTF-8: byte {raw[bad.start]:#04x} at {bad.start}; send JSON in UTF-8")
    return InvalidInput(field, f"it is no JSON: {str(error)[:200]}")


def given_fields(value: msgspec.Struct) -> dict[str, Any]:
    """The fields of a body that were given, by name; null is given, too."""
    return {name: given for name in value.__struct_fields__ if (given := getattr(value, name)) is not msgspec.UNSET}
