"""How numbers, times and other people's words are written on a page.

Keys, tasks and errors may hold anything. Each is escaped, its control characters are shown as signs, and `bdi` keeps a
direction of writing inside its own word.
"""

from __future__ import annotations

import html
import re
from datetime import datetime

__all__ = [
    "UNKNOWN",
    "as_text",
    "count",
    "duration",
    "instant",
    "lines",
    "moment_label",
    "percent",
    "plain",
    "rate",
    "showable",
    "word",
]

SPACE = "\N{NO-BREAK SPACE}"
UNKNOWN = "\N{EN DASH}"

_RATES = (("s", 1), ("min", 60), ("h", 3_600))
_UNITS = (("d", "h", 86_400, 3_600), ("h", "min", 3_600, 60), ("min", "s", 60, 1))

# What a browser drops or obeys: controls, and the half characters that no file can hold.
_UNSHOWABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def plain(text: object, longest: int = 160) -> str:
    """Somebody else's words, for an attribute or a title."""
    said = str(text)
    cut = said if len(said) <= longest else said[: longest - 1] + "…"
    return html.escape(showable(cut), quote=True)


def showable(text: str) -> str:
    """A text without what a browser drops or obeys."""
    return _DIRECTION.sub("", _UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", text))


def lines(text: object, longest: int = 100_000) -> str:
    """Somebody else's words of several lines, each with a direction of its own, for what keeps lines as they are."""
    said = str(text)
    cut = said if len(said) <= longest else said[: longest - 1] + "…"
    return "\n".join(f"<bdi>{html.escape(showable(line.expandtabs(4)), quote=True)}</bdi>" for line in cut.split("\n"))


def word(text: object, longest: int = 160) -> str:
    """Somebody else's words, for the page."""
    return f"<bdi>{plain(text, longest)}</bdi>"


def count(number: float) -> str:
    """A whole number with its thousands set apart."""
    return f"{number:,.0f}"


def percent(share: float) -> str:
    """A share; never 0 or 100 where it only nears them."""
    value = share * 100
    if value in (0, 100):
        said = f"{value:.0f}"
    elif value < 0.1:
        said = f"<{SPACE}0.1"
    elif value > 99.9:
        said = f">{SPACE}99.9"
    else:
        said = f"{value:.1f}" if value < 9.95 or value > 90 else f"{value:.0f}"
    return f"{said}{SPACE}%"


def rate(a_second: float) -> str:
    """Jobs a second, or a minute or an hour where a second is too short to count in."""
    if a_second == 0:
        return "0"
    unit, seconds = next((u, s) for u, s in _RATES if a_second * s >= 1 or u == "h")
    value = a_second * seconds
    return f"{value:,.0f}/{unit}" if value >= 10 else f"{value:.1f}/{unit}"


def duration(seconds: float | None) -> str:
    """A length of time as one would say it: in one unit up to seconds, then in two such as minutes and seconds."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0.000_000_5:
        return f"0{SPACE}s"
    if seconds < 0.000_999_5:
        return f"{seconds * 1_000_000:.0f}{SPACE}\N{MICRO SIGN}s"
    if seconds < 0.009_95:
        return f"{seconds * 1_000:.2g}{SPACE}ms"
    if seconds < 0.999_5:
        return f"{seconds * 1_000:.0f}{SPACE}ms"
    if seconds < 59.5:
        return f"{seconds:.2g}{SPACE}s" if seconds < 9.95 else f"{seconds:.0f}{SPACE}s"
    large, small, size, part = next(unit for unit in _UNITS if seconds >= unit[2] - unit[3] / 2)
    whole, rest = divmod(round(seconds / part), round(size / part))
    return f"{whole:,}{SPACE}{large}" + (f"{SPACE}{rest}{SPACE}{small}" if rest and whole < 20 else "")


def as_text(said: str) -> str:
    """The same for a terminal or a pipe, where a space is a space."""
    return said.replace(SPACE, " ")


def instant(at: datetime) -> str:
    """A time of day in UTC."""
    return f"{at:%Y-%m-%d %H:%M:%S}"


def moment_label(at: datetime, step_seconds: float, seconds: float) -> str:
    """A mark on the time axis: as short as its step and its length allow."""
    if step_seconds >= 86_400:
        return f"{at.day} {at:%b}"
    if seconds > 86_400:
        return f"{at.day} {at:%b} {at:%H:%M}"
    return f"{at:%H:%M:%S}" if step_seconds < 60 else f"{at:%H:%M}"
