"""A page or an act as it is written down: `@pages.show("/queues/{queue}")`, `@pages.act("/queues/{queue}/pause")`.

A function that shows is given a view and what stands in the path, and returns a `Shown`, or where another page is meant
an `Elsewhere`. One that acts is given a view whose form was checked, and returns where to go on and what was done; or a
`Shown`, where the form has to be filled in again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Done", "Elsewhere", "Entry", "Framed", "Pages", "Result", "Shown"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A template, the page's title, and what the template is given."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    # Whether an open page is drawn again as things change; not one with a form to fill in.
    is_live: bool = True


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What is asked for is another page."""

    to: str


@dataclass(frozen=True, slots=True)
class Framed:
    """A whole page that was made elsewhere, to stand in a frame: nothing in it runs or loads anything."""

    html: str


@dataclass(frozen=True, slots=True)
class Done:
    """An act is over: where the browser goes next, and what is said there."""

    to: str
    said: str = ""


Result = Shown | Elsewhere | Framed | Done


@dataclass(frozen=True, slots=True)
class Entry:
    """One of them. `segments` are the parts of its path; a parameter is {name}."""

    method: str
    path: str
    function: Callable[..., Result]

    @property
    def segments(self) -> tuple[str, ...]:
        """The parts of its path."""
        return tuple(self.path.strip("/").split("/"))


class Pages(list[Entry]):
    """Pages and acts of one subject."""

    def show(self, path: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
        """A page that is looked at."""
        return self._add("GET", path)

    def act(self, path: str) -> Callable[[Callable[..., Shown | Done]], Callable[..., Shown | Done]]:
        """Something that is done by a form."""
        return self._add("POST", path)

    def _add(self, method: str, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def take(function: Callable[..., Any]) -> Callable[..., Any]:
            self.append(Entry(method, path, function))
            return function

        return take
