"""From JSON back to what a handler's annotations ask for.

A converter is made once for each annotated parameter that JSON cannot fill by itself; for `str`, `int`, `dict[str,
Any]` and their like there is none, and nothing is checked. An annotation that cannot be resolved, or that names
something unknown here, leaves the value as JSON had it: the annotations are the user's and need not be made for us.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias, Union, get_args, get_origin

import msgspec

from penstock.errors import InvalidInput

__all__ = ["Converter", "converter_for", "is_context", "resolved"]

Converter: TypeAlias = Callable[[str, Any], Any]

_NATIVE = (inspect.Parameter.empty, Any, object, None, types.NoneType, str, int, float, bool, dict, list)
_UNIONS = (Union, types.UnionType)


def is_context(parameter: inspect.Parameter, function: Callable[..., Any]) -> bool:
    """Whether the worker fills this parameter in."""
    if parameter.name == "context":
        return True
    annotation = parameter.annotation
    if isinstance(annotation, str):
        if "Context" not in annotation:
            return False
        names = {part.strip() for part in annotation.split("|")}
        annotation = resolved(annotation, function)
        if annotation is inspect.Parameter.empty:
            return bool(names & {"penstock.Context"})
    kinds = get_args(annotation) if get_origin(annotation) in _UNIONS else (annotation,)
    return any(
        getattr(kind, "__name__", None) == "Context"
        and str(getattr(kind, "__module__", "")).split(".")[0] == "penstock"
        for kind in kinds
    )


def resolved(annotation: Any, function: Callable[..., Any]) -> Any:
    """The annotation itself where it was written as text, or `Parameter.empty` where its names are not to be found."""
    if not isinstance(annotation, str):
        return annotation
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner)
    if not hasattr(inner, "__code__"):
        inner = getattr(inner, "__func__", None) or getattr(type(inner), "__call__", inner)  # noqa: B004
        inner = inspect.unwrap(inner)
    names: dict[str, Any] = dict(getattr(inner, "__globals__", None) or vars(sys.modules["builtins"]))
    try:
        closure = inspect.getclosurevars(inner).nonlocals if getattr(inner, "__closure__", None) else {}
        # The text is the user's own source code, written beside the function.
        return eval(annotation, names, dict(closure))  # noqa: S307
    except Exception:  # Evaluating an annotation may raise anything, and none of it concerns the job.
        return inspect.Parameter.empty


def converter_for(annotation: Any) -> Converter | None:
    """What makes JSON into this type, or None where it already is."""
    if _is_native(annotation):
        return None
    try:
        msgspec.json.Decoder(annotation, dec_hook=_from_json)
    except Exception:  # Whatever msgspec cannot take may still be something that is tried piece by piece.
        return _converter_by_parts(annotation)

    def convert(field: str, value: Any) -> Any:
        try:
            return msgspec.convert(value, annotation, str_keys=True, dec_hook=_from_json)
        except Exception as error:  # A model's own validators may raise anything.
            raise InvalidInput(
                field, f"it does not fit its annotation ({str(error)[:300]}); enqueue the job again"
            ) from error

    return convert


def _is_native(annotation: Any) -> bool:
    if any(annotation is native for native in _NATIVE):
        return True
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is dict:
        return inner[0] in (str, Any) and _is_native(inner[1])
    return (origin is list or origin in _UNIONS) and all(_is_native(part) for part in inner)


def _converter_by_parts(annotation: Any) -> Converter | None:
    """For a union of types that look alike in JSON: the first that fits. For enums of odd values: by value."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):

        def by_value(field: str, value: Any) -> Any:
            for member in annotation:
                if member.value == value:
                    return member
            raise InvalidInput(field, f"{value!a:.60} is no {annotation.__name__}; enqueue the job again")

        return by_value
    if get_origin(annotation) not in _UNIONS:
        return None
    converters = [(part, converter_for(part)) for part in get_args(annotation)]

    def first_that_fits(field: str, value: Any) -> Any:
        for part, converter in converters:
            if converter is None:
                if part is Any or not isinstance(part, type) or isinstance(value, part):
                    return value
                continue
            try:
                return converter(field, value)
            except InvalidInput:
                continue
        raise InvalidInput(field, f"{value!a:.60} does not fit {annotation}; enqueue the job again")

    return first_that_fits


def _from_json(kind: type[Any], value: Any) -> Any:
    validate = getattr(kind, "model_validate_json", None)
    if validate is not None:
        # As JSON, so that a strict model takes its dates from text.
        return validate(msgspec.json.encode(value))
    return value
