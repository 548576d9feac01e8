"""Positional arguments: read from JSON straight into a tuple, in the order of a handler's parameters.

A dict of them, its names compared with the parameters', and a call by name take three times as long, which is more than
all else that a worker does around a handler that does little. Only a function itself is called like this, not what was
wrapped around one or made of one: that may take its arguments by name only. Names that are missing or unknown, and what
is not JSON, are for `Arguments.decode`, which says what is wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from types import FunctionType
from typing import Any, TypeAlias

import msgspec

__all__ = ["DecodePositional", "find_positional"]

# The arguments in order; None: they have to be decoded by name.
DecodePositional: TypeAlias = Callable[[bytes | str], tuple[Any, ...] | None]

# Defaults of these types are the same for every call, whoever passes them.
_CONSTANTS = (str, int, float, bool, type(None))
_OPEN = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def find_positional(
    function: Callable[..., Any], names: Collection[str], defaults: Mapping[str, Any]
) -> DecodePositional | None:
    """How the arguments of these names are read for a call by position, after the context where the function takes
    one; None where it cannot be called like that.
    """
    if type(function) is not FunctionType or hasattr(function, "__wrapped__") or hasattr(function, "__signature__"):
        return None
    plain: FunctionType = function
    code, own = plain.__code__, plain.__defaults__
    order = code.co_varnames[: code.co_argcount]
    if any(defaults.get(name, value) is not value for name, value in zip(order[::-1], (own or ())[::-1], strict=False)):
        return None  # They were changed since it was declared.
    if order[:1] == ("context",):
        order = order[1:]
    if code.co_kwonlyargcount or code.co_flags & _OPEN or set(order) != set(names):
        return None
    if any(type(default) not in _CONSTANTS for default in defaults.values()):
        return None
    if any(name.startswith("__") for name in order):
        return None  # Names that a struct has itself.
    fields = [(name, Any, defaults[name]) if name in defaults else (name, Any) for name in order]
    struct = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, gc=False)
    decode = msgspec.json.Decoder(struct).decode
    as_tuple = msgspec.structs.astuple

    def decode_positional(raw: bytes | str) -> tuple[Any, ...] | None:
        if plain.__code__ is not code or plain.__defaults__ is not own:
            return None  # What reloads modules changes functions where they stand: the order may be another.
        try:
            return as_tuple(decode(raw))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None

    return decode_positional
