"""The arguments of a task: bound to the handler's signature when a job is enqueued, converted back when it runs.

An `Arguments` is made once for each task and knows the handler's parameters. Jobs carry their arguments by name. A
parameter named `context` is filled in by the worker and is no part of the job. Names that do not fit, and values that
do not fit their annotations, are refused before anything is written; a job that came by another way (SQL, an older
version of the code) is refused when it is decoded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from penstock.errors import InvalidInput
from penstock.model.checks import shown
from penstock.model.encoding import (
    encode_arguments,
    encode_result,
    encode_scalars,
    have_any_names,
    have_length,
    have_names,
    have_scalars,
)
from penstock.model.wrong_calls import meant_by
from penstock.task.conversion import Fit, Misfit, find_fit, is_context, resolved
from penstock.task.positional import DecodePositional, find_positional

__all__ = ["Arguments", "encode_result"]

_decode = msgspec.json.Decoder().decode
# Values of these types are their own JSON.
_JSON = frozenset({str, int, float, bool, type(None)})
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Arguments:
    """What one handler takes; `task` is what the handler is called in messages, if not by its own name."""

    def __init__(self, function: Callable[..., Any], task: str | None = None) -> None:
        self._function = function
        self._task = _name(function) if task is None else task
        # Its name, where there is one.
        self.context_parameter: str | None = None
        self._parameters: dict[str, inspect.Parameter] = {}
        self._any_name: inspect.Parameter | None = None
        for index, parameter in enumerate(_signature(function).parameters.values()):
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self._any_name = parameter
            elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise InvalidInput(
                    parameter.name,
                    f"argument {parameter.name!r} of {_name(function)} can only be passed by position; remove the '/'",
                )
            elif parameter.kind in _NAMED:
                if parameter.name == "context":
                    _check_context(parameter, index, _name(function))
                    self.context_parameter = "context"
                elif is_context(parameter, function):
                    raise InvalidInput(
                        parameter.name,
                        f"argument {parameter.name!r} of {self._task} is annotated as a Context; call it 'context'",
                    )
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
        # By parameter, what its annotation asks for; None until the first job. And those that the worker converts by.
        self._fits: dict[str, Fit] | None = None
        self._converting: dict[str, Fit] = {}
        self._any_name_fit: Fit | None = None
        # For a handler that can be called by position: its arguments in order, or None where `decode` has to look at
        # them. Not known before the first job either.
        self.decode_positional: DecodePositional | None = None
        # Whether an annotation could not be resolved when the first job was enqueued: the worker tries once more.
        self._has_unresolved = False

    def bind(self, positional: Sequence[Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
        """All arguments by name, those given by position too."""
        if not positional:
            return named
        if len(positional) > len(self._positional):
            raise InvalidInput(
                "args",
                f"{self._task} takes {len(self._positional)} arguments by position, not {len(positional)}; "
                "pass them by name",
            )
        bound = dict(zip(self._positional, positional, strict=False))
        for name in bound.keys() & named.keys():
            raise InvalidInput(name, f"{self._task} is given argument {name!r} twice; pass it once")
        return bound | dict(named)

    def encode(self, named: Mapping[str, Any]) -> bytes:
        """The arguments as JSON, or `InvalidInput` naming the one that does not fit or is not JSON."""
        if type(named) is not dict:
            named = _as_dict(named)
        if named.keys() != self.names:
            self.check_names(named)
        raw = encode_arguments(named)
        fits = self._fits
        if fits is None:
            fits = self._prepare()
        if fits:
            for name, value in named.items():
                fit = fits.get(name)
                if fit is not None and type(value) not in fit.exact:
                    self._check(name, value, fit, raw)
        if self._any_name_fit is not None:
            for name in named.keys() - self.names:
                self._check(name, named[name], self._any_name_fit, raw)
        return raw

    def encode_many(self, rows: Sequence[Mapping[str, Any]]) -> list[bytes]:
        """The same for many jobs; a refusal names the row too."""
        quickly_encoded = self._encode_quickly(rows)
        if quickly_encoded is not None:
            return quickly_encoded
        encoded = []
        try:
            for row in rows:
                encoded.append(self.encode(row))  # noqa: PERF401  (its length names the row)
        except InvalidInput as error:
            raise _in_row(len(encoded), error) from error
        return encoded

    def _encode_quickly(self, rows: Sequence[Mapping[str, Any]]) -> list[bytes] | None:
        """Column by column; single values are looked at only where that does not do. None: they are not alike."""
        fits = self._prepare() if self._fits is None else self._fits
        if self._any_name is not None and not self.names and self._any_name_fit is None:
            # It takes whatever there is.
            return encode_scalars(rows) if type(rows) is list and have_any_names(rows) and have_scalars(rows) else None
        has_all_fits = len(fits) == len(self.names)
        # Where each column is looked at, one that is missing shows by that.
        if type(rows) is not list or not (
            have_length(rows, len(fits)) if has_all_fits else have_names(rows, self.names)
        ):
            return None
        try:
            inexact = [
                name for name, fit in fits.items() if not fit.exact.issuperset(map(type, map(itemgetter(name), rows)))
            ]
        except KeyError:
            return None
        if (inexact or not has_all_fits) and not have_scalars(rows):
            return None
        encoded = encode_scalars(rows)
        if encoded is not None:
            for name in inexact:
                self._check_column(name, fits[name], rows, encoded)
        return encoded

    def decode(self, raw: bytes | str) -> dict[str, Any]:
        """The handler's keyword arguments, converted by its annotations."""
        if self._fits is None or self._has_unresolved:
            self._prepare()
            self._has_unresolved = False
        try:
            named = _decode(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidInput("args", f"they are not JSON that can be read ({error}); enqueue the job again") from None
        if type(named) is not dict:
            raise InvalidInput("args", f"they are a JSON {type(named).__name__}, not an object; enqueue the job again")
        if named.keys() != self.names:
            self.check_names(named)
            if self._any_name_fit is not None:
                for name in named.keys() - self.names:
                    _convert(named, name, self._any_name_fit)
        converting = self._converting
        if converting:
            for name in converting.keys() & named.keys():
                _convert(named, name, converting[name])
        return named

    def fit_of(self, name: str) -> Fit | None:
        """What an argument of this name has to be; None: anything, as far as is known here."""
        fits = self._prepare() if self._fits is None else self._fits
        return fits.get(name) if name in self.names else self._any_name_fit

    def _prepare(self) -> dict[str, Fit]:
        # Not before the first job: an annotation may name what is defined further down in its module.
        fits: dict[str, Fit] = {}
        for name, parameter in self._parameters.items():
            fit = self._resolve(parameter)
            if fit is not None:
                fits[name] = fit
        if self._any_name is not None:
            self._any_name_fit = self._resolve(self._any_name)
        self._converting = {name: fit for name, fit in fits.items() if fit.convert is not None}
        may_pass = not self._converting and not self._has_unresolved and self._any_name is None
        self.decode_positional = find_positional(self._function, self.names, self.defaults) if may_pass else None
        self._fits = fits
        return fits

    def _resolve(self, parameter: inspect.Parameter) -> Fit | None:
        annotation = resolved(parameter.annotation, self._function)
        if annotation is inspect.Parameter.empty and parameter.annotation is not annotation:
            self._has_unresolved = True
        return find_fit(annotation, parameter.default)

    def _check_column(self, name: str, fit: Fit, rows: Sequence[Mapping[str, Any]], encoded: Sequence[bytes]) -> None:
        for index, row in enumerate(rows):
            if type(row[name]) not in fit.exact:
                try:
                    self._check(name, row[name], fit, encoded[index])
                except InvalidInput as error:
                    raise _in_row(index, error) from error

    def _check(self, name: str, value: Any, fit: Fit, raw: bytes) -> None:
        """Refuse a value of which the worker could not build what the annotation asks for."""
        try:
            fit.build(value if type(value) in _JSON else _decode(raw)[name])
        except Misfit as error:
            raise InvalidInput(
                name,
                f"task {self._task!r} wants {fit.name}, and {type(value).__name__} {shown(value)} does not "
                f"fit{f' ({error})' if str(error) else ''}; pass {fit.name}, or what JSON writes for one",
            ) from error

    def check_names(self, named: Collection[Any]) -> None:
        """Refuse names that are not those of the arguments, or that lack one."""
        for name in named:
            if not isinstance(name, str):
                raise InvalidInput("args", f"the name {name!a:.60} of an argument is not text; pass str names")
            if name == self.context_parameter:
                raise InvalidInput(name, f"the worker passes {name!r} to {self._task}; leave it out")
            if name not in self.names and self._any_name is None:
                takes = ", ".join(self._parameters) or "none"
                meant = meant_by(name, self._parameters)
                raise InvalidInput(name, f"{self._task} has no argument {name!a:.200}{meant}; it takes: {takes}")
        for name in self._parameters:
            if name in self._required and name not in named:
                raise InvalidInput(name, f"{self._task} needs argument {name!r}; pass it")


def _check_context(parameter: inspect.Parameter, index: int, handler: str) -> None:
    """Refuse a context that type checkers could not leave out of what `enqueue` takes."""
    is_first = index == 0 and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    if not is_first and parameter.default is inspect.Parameter.empty:
        raise InvalidInput(
            "context",
            f"{handler} takes it neither first nor with a default; write def {handler}(context, ...), or context=None",
        )


def _in_row(row: int, error: InvalidInput) -> InvalidInput:
    return InvalidInput(error.field, f"in row {row}: {error.problem}")


def _convert(named: dict[str, Any], name: str, fit: Fit) -> None:
    """Put what the handler gets in the place of JSON."""
    if fit.convert is not None:
        try:
            named[name] = fit.convert(named[name])
        except Misfit as error:
            raise InvalidInput(
                name, f"it does not fit its annotation {fit.name} ({error}); enqueue the job again"
            ) from error


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
