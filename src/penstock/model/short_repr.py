"""A short repr for what a person looks at line by line: a REPL or a notebook shows it whole.

Fields that have their default are left out, long values are cut, and so is the whole.
"""

from __future__ import annotations

import reprlib
from dataclasses import MISSING, fields
from typing import Any

__all__ = ["MOST_CHARACTERS", "ShortRepr"]

MOST_CHARACTERS = 600

_shorten = reprlib.Repr()
_shorten.maxstring = _shorten.maxother = _shorten.maxlong = 80
_shorten.maxlist = _shorten.maxtuple = _shorten.maxdict = 3
_shorten.maxlevel = 3


class ShortRepr:
    """For dataclasses; each says `repr=False`, or Python would make its own."""

    __slots__ = ()

    def __repr__(self) -> str:
        given = ((each, getattr(self, each.name)) for each in fields(self) if each.repr)  # type: ignore[arg-type]
        shown = [f"{each.name}={_shorten.repr(value)}" for each, value in given if not _is_default(each, value)]
        text = f"{type(self).__name__}({', '.join(shown)})"
        return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 4]}...)"


def _is_default(field: Any, value: object) -> bool:
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return bool(type(value) is type(default) and value == default)
