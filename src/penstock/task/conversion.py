"""What a handler's annotations ask for: which JSON fits them, and what the worker makes of it.

A `Fit` is made once for each annotated parameter. Whoever enqueues checks by it, and the worker converts by it, so that
the worker can build whatever was accepted. What JSON has itself (`str`, `int`, `dict[str, Any]` and their like) is
passed on as it is, and checked only when it is enqueued. An annotation that cannot be resolved, or that names something
unknown here, asks for nothing: the annotations are the user's and need not be made for us.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias, Union, get_args, get_origin
from uuid import UUID

import msgspec

from penstock.forking import between_forks

__all__ = ["Fit", "Misfit", "find_fit", "is_context", "resolved"]

Converter: TypeAlias = Callable[[Any], Any]

_ANYTHING = (inspect.Parameter.empty, Any, object)
_NATIVE = (*_ANYTHING, None, types.NoneType, str, int, float, bool, dict, list)
_UNIONS = (Union, types.UnionType)
# Values of these types fit the annotation, whatever they are.
_EXACT: dict[Any, frozenset[type]] = {
    **{kind: frozenset({kind}) for kind in (str, int, bool, UUID, datetime, date, time, timedelta, Decimal)},
    float: frozenset({float, int}),
    types.NoneType: frozenset({types.NoneType}),
}
# msgspec learns a type where it is first used, and runs Python meanwhile; a thread that then used the same type would
# take it as it is, half learnt, and that ends the process. So it learns each here, before any use, in one thread at a
# time; in the same one again where evaluating an annotation imports a module that declares tasks.
_learning = threading.RLock()


class Misfit(ValueError):
    """A value does not fit an annotation; the text says why, as far as more is known than that."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What one annotation asks for."""

    annotation: Any
    # What the worker makes of JSON; None: it is passed on as it is.
    convert: Converter | None
    # Values of just these types fit without a closer look.
    exact: frozenset[type]

    def build(self, value: Any) -> Any:
        """What a handler would get for a JSON value, or `Misfit`."""
        if self.convert is not None:
            return self.convert(value)
        if not _is_like(value, self.annotation):
            raise Misfit
        return value

    @property
    def name(self) -> str:
        """The annotation as it stands in a message."""
        return self.annotation.__name__ if isinstance(self.annotation, type) else str(self.annotation)


def is_context(parameter: inspect.Parameter, function: Callable[..., Any]) -> bool:
    """Whether this parameter is annotated as a `penstock.Context`."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        if "Context" not in annotation:
            return False
        names = {part.strip() for part in annotation.split("|")}
        annotation = resolved(annotation, function)
        if annotation is inspect.Parameter.empty:
            return bool(names & {"penstock.Context", "penstock.BatchContext"})
    kinds = get_args(annotation) if get_origin(annotation) in _UNIONS else (annotation,)
    return any(
        getattr(kind, "__name__", None) in ("Context", "BatchContext")
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
        # The text is the user's own source code, written beside the function; in quotes it is text once more.
        found = eval(annotation, names, dict(closure))  # noqa: S307
        return eval(found, names, dict(closure)) if isinstance(found, str) else found  # noqa: S307
    except Exception:  # Evaluating an annotation may raise anything, and none of it concerns the job.
        return inspect.Parameter.empty


def find_fit(annotation: Any, default: Any = inspect.Parameter.empty) -> Fit | None:
    """What an annotation asks for; None: nothing that is known here. A default of None may be passed as well."""
    if _is_anything(annotation):
        return None
    if default is None:
        annotation = _or_none(annotation)
    if _is_native(annotation):
        return Fit(annotation, None, _find_exact(annotation))
    convert = _find_converter(annotation)
    return None if convert is None else Fit(annotation, convert, _find_exact(annotation))


def _or_none(annotation: Any) -> Any:
    try:
        return annotation | None
    except Exception:  # An annotation may be anything, and need not be part of a union.
        return annotation


def _is_anything(annotation: Any) -> bool:
    return any(annotation is each for each in _ANYTHING)


def _find_exact(annotation: Any) -> frozenset[type]:
    parts = get_args(annotation) if get_origin(annotation) in _UNIONS else (annotation,)
    return frozenset().union(*(exact for part in parts for kind, exact in _EXACT.items() if part is kind))


def _find_converter(annotation: Any) -> Converter | None:
    """What makes JSON into this type, or None where nothing here can."""
    try:
        with between_forks, _learning:
            msgspec.json.Decoder(annotation, dec_hook=_from_json)
    except Exception:  # Whatever msgspec cannot take may still be something that is tried piece by piece.
        return _find_converter_by_parts(annotation)

    def convert(value: Any) -> Any:
        try:
            return msgspec.convert(value, annotation, str_keys=True, dec_hook=_from_json)
        except Exception as error:  # A model's own validators may raise anything.
            raise Misfit(str(error)[:300]) from error

    return convert


def _is_native(annotation: Any) -> bool:
    if any(annotation is native for native in _NATIVE):
        return True
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is dict:
        return not inner or (inner[0] in (str, Any) and _is_native(inner[1]))
    return (origin is list or origin in _UNIONS) and all(_is_native(part) for part in inner)


def _is_like(value: Any, annotation: Any) -> bool:
    """Whether JSON is what a native annotation says. As type checkers have it, a bool is an int, and an int a float."""
    if _is_anything(annotation):
        return True
    if annotation is None:
        return value is None
    if annotation is float:
        return isinstance(value, (int, float))
    if isinstance(annotation, type):
        return isinstance(value, annotation)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in _UNIONS:
        return any(_is_like(value, part) for part in inner)
    if not isinstance(value, origin):
        return False
    if not inner or inner[-1] is Any:
        return True
    return all(_is_like(each, inner[-1]) for each in (value.values() if origin is dict else value))


def _find_converter_by_parts(annotation: Any) -> Converter | None:
    """For a union of types that look alike in JSON: the first that fits. For enums of odd values: by value."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):

        def by_value(value: Any) -> Any:
            for member in annotation:
                if member.value == value:
                    return member
            raise Misfit

        return by_value
    if get_origin(annotation) not in _UNIONS:
        return None
    fits = [find_fit(part) for part in get_args(annotation)]

    def first_that_fits(value: Any) -> Any:
        for fit in fits:
            if fit is None:
                return value
            try:
                return fit.build(value)
            except Misfit:
                continue
        raise Misfit

    return first_that_fits


def _from_json(kind: type[Any], value: Any) -> Any:
    validate = getattr(kind, "model_validate_json", None)
    if validate is not None:
        # As JSON, so that a strict model takes its dates from text.
        return validate(msgspec.json.encode(value))
    return value
