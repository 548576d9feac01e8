"""key=value on the command line, read the way the handler's annotations say.

Where the handler wants text, text it stays: `zip=01234`. Where it wants something that JSON writes as text (a date, a
UUID, a Decimal, an Enum), the text is tried first. Everything else is JSON where it is JSON, and text where it is not.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import Any, Union, get_args, get_origin

import msgspec
import typer

from penstock.errors import InvalidInput
from penstock.task.conversion import converter_for, resolved
from penstock.task.definition import TaskDefinition

__all__ = ["parse_arguments"]

_MISSING = object()


def parse_arguments(task: TaskDefinition, given: Sequence[str]) -> dict[str, Any]:
    """The arguments of a job; names that do not fit the handler are left for `enqueue` to refuse."""
    named: dict[str, Any] = {}
    parameters = inspect.signature(task.function).parameters
    anything = next((p for p in parameters.values() if p.kind is inspect.Parameter.VAR_KEYWORD), None)
    for word in given:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{word!a:.60} is no argument: write key=value")
        if name in named:
            raise typer.BadParameter(f"argument {name!a:.60} is given twice")
        parameter = parameters.get(name, anything)
        annotation = inspect.Parameter.empty if parameter is None else resolved(parameter.annotation, task.function)
        named[name] = _value(name, text, annotation)
    return named


def _value(name: str, text: str, annotation: Any) -> Any:
    as_json = _json(text)
    if annotation is inspect.Parameter.empty or annotation is Any:
        return text if as_json is _MISSING else as_json
    converter = converter_for(annotation)
    if converter is None:
        order = [text, as_json] if _is_text(annotation) and as_json is not None else [as_json, text]
    else:
        order = [text, as_json]
    for value in order:
        if value is _MISSING:
            continue
        try:
            return _checked(value, annotation) if converter is None else converter(name, value)
        except (InvalidInput, msgspec.ValidationError):
            continue
    raise InvalidInput(name, f"{text!a:.60} does not fit {_shown(annotation)}; text or JSON of that kind is needed")


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _MISSING


def _checked(value: Any, annotation: Any) -> Any:
    try:
        return msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        raise
    except Exception:  # An annotation that msgspec has no idea of says nothing about the value.
        return value


def _is_text(annotation: Any) -> bool:
    """Whether text fits, and nothing else but None."""
    if get_origin(annotation) in (Union, types.UnionType):
        return all(part in (str, types.NoneType) for part in get_args(annotation))
    return annotation is str


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
