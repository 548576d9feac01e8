"""key=value on the command line, read the way the handler's annotations say.

Where the handler wants text, text it stays: `zip=01234`. Where it wants something that JSON writes as text (a date, a
UUID, a Decimal, an Enum), the text is tried first. Everything else is JSON where it is JSON, and text where it is not.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, Union, get_args, get_origin

import msgspec
import typer

from penstock.errors import InvalidInput
from penstock.task.conversion import Fit, Misfit
from penstock.task.definition import TaskDefinition

__all__ = ["parse_arguments"]

_MISSING = object()


def parse_arguments(task: TaskDefinition | None, given: Sequence[str]) -> dict[str, Any]:
    """The arguments of a job; names that do not fit the handler are left for `enqueue` to refuse. Without a task they
    are JSON, or else text.
    """
    named: dict[str, Any] = {}
    for word in given:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{word!a:.60} is no argument: write key=value")
        if name in named:
            raise typer.BadParameter(f"argument {name!a:.60} is given twice")
        named[name] = _value(name, text, None if task is None else task.arguments.fit_of(name))
    return named


def _value(name: str, text: str, fit: Fit | None) -> Any:
    as_json = _json(text)
    if fit is None:
        return text if as_json is _MISSING else as_json
    is_text_first = fit.convert is not None or (_is_text(fit.annotation) and as_json is not None)
    for value in [text, as_json] if is_text_first else [as_json, text]:
        if value is _MISSING:
            continue
        try:
            return fit.build(value)
        except Misfit:
            continue
    raise InvalidInput(name, f"{text!a:.60} does not fit {fit.name}; text or JSON of that kind is needed")


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _MISSING


def _is_text(annotation: Any) -> bool:
    """Whether text fits, and nothing else but None."""
    if get_origin(annotation) in (Union, types.UnionType):
        return all(part in (str, types.NoneType) for part in get_args(annotation))
    return annotation is str
