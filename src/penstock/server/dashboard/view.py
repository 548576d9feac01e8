"""What a page's function is given: the API as whoever looks may use it, links, and what was asked or sent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any
from urllib.parse import quote, urlencode

from penstock.errors import InvalidInput
from penstock.server.caller import Caller
from penstock.server.dashboard.report_file import ReportFile
from penstock.server.inner_api import InnerApi

__all__ = ["Given", "View", "link"]

_WAIT = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

# What stands in the bar: a name, the first part of its path, and what one must be able to ask to be shown it; nothing:
# that no part of the system is kept from whoever looks.
PLACES: tuple[tuple[str, str, tuple[str, ...] | None], ...] = (
    ("Overview", "", ("queues",)),
    ("Jobs", "jobs", ("jobs",)),
    ("Dead letters", "dead-letters", ("dead-letters", "causes")),
    ("Schedules", "schedules", ("crons",)),
    ("Workers", "workers", ("workers",)),
    ("Loads", "loads", ("loads",)),
    ("Shards", "shards", ("shards",)),
    ("Tokens", "tokens", ("tokens",)),
    ("Audit", "audit", ("audit",)),
    ("History", "history", None),
)


class Given:
    """Texts by name, as a query or a form has them; an empty one counts as none."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = pairs

    def text(self, name: str) -> str | None:
        """The first of that name, or None."""
        return next((value for each, value in self._pairs if each == name and value != ""), None)

    def required(self, name: str) -> str:
        """The first of that name; refused where there is none."""
        found = self.text(name)
        if found is None:
            raise InvalidInput(name, "it is missing; fill it in")
        return found

    def texts(self, name: str) -> list[str]:
        """All of that name."""
        return [value for each, value in self._pairs if each == name and value != ""]

    def number(self, name: str) -> int | None:
        """A whole number, or None."""
        found = self.text(name)
        if found is None:
            return None
        try:
            return int(found)
        except ValueError:
            raise InvalidInput(name, f"{found[:40]!r} is no whole number; write digits") from None

    def decimal(self, name: str) -> float | None:
        """A number that may have a fraction, or None."""
        found = self.text(name)
        if found is None:
            return None
        try:
            number = float(found)
        except ValueError:
            raise InvalidInput(name, f"{found[:40]!r} is no number; write digits") from None
        if not isfinite(number):
            raise InvalidInput(name, f"{found[:40]!r} is no length of time; write a number")
        return number

    def seconds(self, name: str) -> float | None:
        """A length of time, as a number of seconds or as 90s, 15m, 2h, 1d; or None."""
        match = _WAIT.fullmatch((self.text(name) or "").strip())
        return self.decimal(name) if match is None else float(match[1]) * _SECONDS[match[2]]

    def flag(self, name: str) -> bool:
        """Whether a box of that name was ticked."""
        return self.text(name) is not None

    def all(self) -> dict[str, str]:
        """The first of each name."""
        return {name: value for name, value in reversed(self._pairs) if value != ""}


@dataclass(frozen=True, slots=True)
class View:
    """One request for a page. `root` is where the dashboard is mounted, `csrf` what its forms must bear, `now` the
    time as this machine has it, `report` the page that Spark made, where the server was told of one.
    """

    api: InnerApi
    caller: Caller
    root: str
    path: str
    query: Given
    form: Given
    csrf: str
    now: datetime
    report: ReportFile | None

    @property
    def places(self) -> list[tuple[str, str]]:
        """The pages that whoever looks may open."""
        return [
            (name, path)
            for name, path, asked in PLACES
            if (self.caller.sees_all if asked is None else self.may("GET", *asked))
        ]

    def is_at(self, path: str) -> bool:
        """Whether this page is that place, or below it."""
        return self.path.strip("/").split("/")[0] == path

    def url(self, *parts: str, **query: Any) -> str:
        """A link to a page; names may hold anything."""
        return link(self.root, *parts, **query)

    def here(self, **changed: Any) -> str:
        """This page with other options; None takes one away."""
        kept: dict[str, Any] = {**self.query.all(), **changed}
        asked = urlencode({name: value for name, value in kept.items() if value is not None})
        return f"{self.root}{self.path}" + (f"?{asked}" if asked else "")

    def may(self, method: str, *parts: str) -> bool:
        """Whether whoever looks may call that operation of the API: otherwise it is not offered."""
        return self.api.may(method, *parts)


def link(root: str, *parts: str, **query: Any) -> str:
    """A path below `root`, percent-encoded."""
    given: Mapping[str, Any] = {name: value for name, value in query.items() if value is not None}
    asked = urlencode(given, doseq=True)
    return f"{root}/{'/'.join(quote(part, safe='') for part in parts)}" + (f"?{asked}" if asked else "")
