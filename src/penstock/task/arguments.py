"""The arguments of a task: bound to the handler's signature when a job is enqueued, converted back when it runs.

An `Arguments` is made once for each task and knows the handler's parameters. Jobs carry their arguments by name. A
parameter named `context`, or annotated with `penstock.Context`, is filled in by the worker and is no part of the
job. Names that do not fit are refused before anything is written; a job that came by another way (SQL, an older
version of the code) is refused when it is decoded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.errors import InvalidInput
from penstock.model.encoding import encode_arguments, encode_many_scalars, encode_result
from penstock.task.conversion import Converter, converter_for, is_context, resolved

__all__ = ["Arguments", "encode_result"]

_decode = msgspec.json.Decoder().decode
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Arguments:
    """What one handler takes. `context_parameter` is the name the worker's context goes by, if any."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.context_parameter: str | None = None
        self._parameters: dict[str, inspect.Parameter] = {}
        self._any_name: inspect.Parameter | None = None
        for parameter in _signature(function).parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self._any_name = parameter
            elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise InvalidInput(
                    parameter.name,
                    f"argument {parameter.name!r} of {_name(function)} can only be passed by position; remove the '/'",
                )
            elif parameter.kind in _NAMED:
                if self.context_parameter is None and is_context(parameter, function):
                    self.context_parameter = parameter.name
                else:
                    self._parameters[parameter.name] = parameter
        self.names = frozenset(self._parameters)
        self.defaults: Mapping[str, Any] = {
            name: parameter.default
            for name, parameter in self._parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }
        self._required = self.names - self.defaults.keys()
        self._positional = [n for n, p in self._parameters.items() if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        self._converters: dict[str, Converter] | None = None
        self._any_name_converter: Converter | None = None

    def bind(self, positional: Sequence[Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
        """All arguments by name, those given by position too."""
        if not positional:
            return named
        if len(positional) > len(self._positional):
            raise InvalidInput(
                "args",
                f"{_name(self._function)} takes {len(self._positional)} arguments by position, not {len(positional)}; "
                "pass them by name",
            )
        bound = dict(zip(self._positional, positional, strict=False))
        for name in bound.keys() & named.keys():
            raise InvalidInput(name, f"{_name(self._function)} is given argument {name!r} twice; pass it once")
        return bound | dict(named)

    def encode(self, named: Mapping[str, Any]) -> bytes:
        """The arguments as JSON, or `InvalidInput` naming the one that does not fit or is not JSON."""
        if type(named) is not dict:
            named = _as_dict(named)
        if named.keys() != self.names:
            self._refuse_names(named)
        return encode_arguments(named)

    def encode_many(self, rows: Sequence[Mapping[str, Any]]) -> list[bytes]:
        """The same for many jobs; a refusal names the row too."""
        encoded = encode_many_scalars(rows, self.names) if type(rows) is list else None
        if encoded is None:
            encoded = []
            try:
                for row in rows:
                    encoded.append(self.encode(row))
            except InvalidInput as error:
                raise InvalidInput(error.field, f"in row {len(encoded)}: {error.problem}") from error
        return encoded

    def decode(self, raw: bytes | str) -> dict[str, Any]:
        """The handler's keyword arguments, converted by its annotations."""
        converters = self._converters
        if converters is None:
            converters = self._prepare()
        try:
            named = _decode(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidInput("args", f"they are not JSON that can be read ({error}); enqueue the job again") from None
        if type(named) is not dict:
            raise InvalidInput("args", f"they are a JSON {type(named).__name__}, not an object; enqueue the job again")
        if named.keys() != self.names:
            self._refuse_names(named)
            if self._any_name_converter is not None:
                for name in named.keys() - self.names:
                    named[name] = self._any_name_converter(name, named[name])
        if converters:
            for name in converters.keys() & named.keys():
                named[name] = converters[name](name, named[name])
        return named

    def _prepare(self) -> dict[str, Converter]:
        # Not before the first job: an annotation may name what is defined further down in its module.
        converters: dict[str, Converter] = {}
        for name, parameter in self._parameters.items():
            converter = converter_for(resolved(parameter.annotation, self._function))
            if converter is not None:
                converters[name] = converter
        if self._any_name is not None:
            self._any_name_converter = converter_for(resolved(self._any_name.annotation, self._function))
        self._converters = converters
        return converters

    def _refuse_names(self, named: Mapping[Any, Any]) -> None:
        for name in named:
            if not isinstance(name, str):
                raise InvalidInput("args", f"the name {name!a:.60} of an argument is not text; pass str names")
            if name == self.context_parameter:
                raise InvalidInput(name, f"the worker passes {name!r} to {_name(self._function)}; leave it out")
            if name not in self.names and self._any_name is None:
                takes = ", ".join(self._parameters) or "none"
                raise InvalidInput(name, f"{_name(self._function)} has no argument {name!a:.200}; it takes: {takes}")
        for name in self._parameters:
            if name in self._required and name not in named:
                raise InvalidInput(name, f"{_name(self._function)} needs argument {name!r}; pass it")


def _as_dict(named: object) -> dict[str, Any]:
    if not isinstance(named, Mapping):
        raise InvalidInput("args", f"a dict of arguments by name is needed, not {type(named).__name__}")
    return dict(named)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise InvalidInput("task", f"{_name(function)} does not show its arguments; wrap it in a function") from None


def _name(function: Callable[..., Any]) -> str:
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__name__", type(inner).__name__))
