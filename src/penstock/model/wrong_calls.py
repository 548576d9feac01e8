"""Calls that cannot be: an option that there is not, a value left out, too many by position.

Python answers these with a `TypeError` about a function that the caller did not write. A public call answers as with
any other bad input: by name, with what there is, and with what may have been meant.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from penstock.errors import InvalidInput

__all__ = ["check_call", "explain_wrong_calls", "meant_by", "unknown_option"]

P = ParamSpec("P")
R = TypeVar("R")
_signature = functools.cache(inspect.signature)
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_GATHERS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def unknown_option(owner: str, name: str, options: Sequence[str]) -> InvalidInput:
    """The error for an option that there is not; `owner` is the call, or the thing, that does not have it."""
    there_are = f"the options are {', '.join(options)}" if options else "it has none"
    return InvalidInput(name, f"{owner} has no option {name!a:.60}{meant_by(name, options)}; {there_are}")


def meant_by(name: str, names: Iterable[str], nearness: float = 0.6) -> str:
    """The question after a name that is nearly one of these, to 1.0; nothing where it is not."""
    from difflib import get_close_matches  # Rarely needed, and not quick to import.

    close = get_close_matches(name.lower(), names, 1, nearness)
    return f" (did you mean {close[0]!r}?)" if close else ""


def explain_wrong_calls(function: Callable[P, R], call: str | None = None) -> Callable[P, R]:
    """The function, which refuses a wrong call by `InvalidInput`. One that is right costs nothing more."""
    named_call = call or _name_of(function)

    def explain(error: TypeError, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        check_call(function, named_call, args, named, error)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def run_checked(*args: P.args, **named: P.kwargs) -> Any:
            try:
                return await function(*args, **named)
            except TypeError as error:
                explain(error, args, named)
                raise

        return cast("Callable[P, R]", run_checked)

    @functools.wraps(function)
    def call_checked(*args: P.args, **named: P.kwargs) -> R:
        try:
            return function(*args, **named)
        except TypeError as error:
            explain(error, args, named)
            raise

    return call_checked


def check_call(
    function: Callable[..., Any],
    call: str | None,
    args: tuple[Any, ...],
    named: Mapping[str, Any],
    cause: BaseException | None = None,
) -> None:
    """Raise `InvalidInput` where a function cannot be called with these arguments; `call` is what users call it."""
    signature = _signature(function)
    try:
        signature.bind(*args, **named)
    except TypeError:
        refusal = _explain(signature, call or _name_of(function), args, named)
        if refusal is not None:
            raise refusal from cause


def _explain(
    signature: inspect.Signature, call: str, args: tuple[Any, ...], named: Mapping[str, Any]
) -> InvalidInput | None:
    parameters = [each for each in signature.parameters.values() if each.kind not in _GATHERS]
    is_method = bool(parameters) and parameters[0].name == "self"
    parameters, args = parameters[is_method:], args[is_method:]
    options = [each.name for each in parameters if each.kind is not inspect.Parameter.POSITIONAL_ONLY]
    for name in named:
        if name not in options:
            return unknown_option(call, name, options)
    placed = [each.name for each in parameters if each.kind in _BY_POSITION]
    if len(args) > len(placed):
        rest = [name for name in options if name not in placed]
        most = f"only {', '.join(placed)}" if placed else "nothing"
        by_name = f"; give by name: {', '.join(rest)}" if rest else ""
        return InvalidInput(rest[0] if rest else "args", f"{call} takes {most} by position{by_name}")
    for name in placed[: len(args)]:
        if name in named:
            return InvalidInput(name, f"{call} is given it twice, by position and by name; give it once")
    for each in parameters:
        if each.default is each.empty and each.name not in named and each.name not in placed[: len(args)]:
            return InvalidInput(each.name, f"{call} needs it; its arguments are {', '.join(options)}")
    return None


def _name_of(function: Callable[..., Any]) -> str:
    """How a user calls it: App, app.queue, task.options."""
    owner, _, name = function.__qualname__.rpartition(".")
    return owner if name == "__init__" else f"{owner.lower()}.{name}" if owner else name
