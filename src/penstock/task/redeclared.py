"""Whether a function is declared again, as a notebook's cell does that is run again, or another under its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["is_declared_again"]


def is_declared_again(before: Callable[..., Any], now: Callable[..., Any]) -> bool:
    """Whether both are the function of the same name in the same module: run again, reloaded, or edited.

    What a loop or a factory makes several of is the same only where the functions hold the same values.
    """
    before, now = inspect.unwrap(before), inspect.unwrap(now)
    if before is now:
        return True
    if _names(before) is None or _names(before) != _names(now):
        return False
    was_compiled_again = getattr(before, "__code__", None) is not getattr(now, "__code__", None)
    return was_compiled_again or _held(before) == _held(now)


def _names(function: Any) -> tuple[str, str] | None:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or name.endswith("<lambda>"):
        return None
    return module, name


def _held(function: Any) -> list[int]:
    """What functions of the same code may differ in, by identity."""
    cells = getattr(function, "__closure__", None) or ()
    return [
        id(getattr(function, "__self__", None)),
        *map(id, getattr(function, "__defaults__", None) or ()),
        *(id(cell) if _is_empty(cell) else id(cell.cell_contents) for cell in cells),
    ]


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False
