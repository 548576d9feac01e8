"""An option of a queue: what the program knows of it beside its value, kept at its field of `QueueRules`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from penstock.model.checks import checked_choice
from penstock.model.rate import checked_rate, rate_text, starts_a_second

__all__ = ["Kind", "Option", "choice_option", "option", "rate_option"]


class Kind(Enum):
    """What follows where a program declares an option otherwise than the database has it."""

    STRUCTURAL = "the jobs already there are kept by it: the program is refused"
    LIVE = "the database's value counts, the log says so, and app.limit changes it"
    LOGGED = "the database's value counts, and the log says so"


def _same(value: Any) -> Any:
    return value


class Option(NamedTuple):
    """What the program knows of an option beside its value."""

    kind: Kind
    # Takes the option's name and what was given; the value as it is kept, or InvalidInput.
    check: Callable[[str, Any], Any]
    # The value of a queue whose rules it means something to and that was not given another; never stored.
    usual: Any = None
    may_be_ignored: bool = False
    # Of how it stands in the JSON object; weights, which may be many, have a column of their own.
    write: Callable[[Any], Any] = _same
    read: Callable[[Any], Any] = _same
    is_apart: bool = False


def option(kind: Kind, check: Callable[[str, Any], Any], **more: Any) -> Any:
    """A field of the rules. None: there is no such rule."""
    return field(default=None, metadata={"option": Option(kind, check, **more)})


def rate_option(kind: Kind) -> Any:
    """A rate: text in the shortest unit here, starts a second in the JSON object, for SQL to reckon with."""

    def check(name: str, value: object) -> str:
        return rate_text(checked_rate(name, value))

    return option(kind, check, write=starts_a_second, read=rate_text)


def choice_option(kind: Kind, *choices: str, usual: str | None = None) -> Any:
    """One of a few words."""
    return option(kind, partial(checked_choice, choices=choices), usual=usual)
