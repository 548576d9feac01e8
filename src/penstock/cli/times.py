"""Times and waits: as a person writes them, and as one likes to read them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from penstock.clock import system
from penstock.errors import InvalidInput

__all__ = ["ago", "clock_text", "instant", "length", "parse_past", "parse_wait", "parse_when"]

_WAIT = re.compile(r"^(\d{1,12}(?:\.\d{1,6})?)\s*(s|m|h|d|)$")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def parse_wait(field: str, text: str) -> float:
    """Seconds, from `90`, `90s`, `15m`, `2h` or `1d`."""
    match = _WAIT.match(text.strip())
    if match is None:
        raise InvalidInput(field, f"{text!a:.60} is no wait; write seconds, or 90s, 15m, 2h, 1d")
    return float(match[1]) * _SECONDS[match[2]]


def parse_when(field: str, text: str) -> datetime:
    """An instant: `now`, a wait from now on, or ISO 8601 with its zone."""
    if text.strip() == "now":
        return system.now()
    if (match := _WAIT.match(text.strip())) and match[2]:  # without its unit it might be a date: 20300131
        try:
            return system.now() + timedelta(seconds=parse_wait(field, text))
        except OverflowError:
            raise InvalidInput(field, f"{text!a:.60} from now is too late; give at most the year 9998") from None
    return _parse_iso(field, text)


def parse_past(field: str, text: str) -> datetime:
    """An instant: a wait before now, or ISO 8601 with its zone."""
    if (match := _WAIT.match(text.strip())) and match[2]:
        try:
            return system.now() - timedelta(seconds=parse_wait(field, text))
        except OverflowError:
            raise InvalidInput(field, f"{text!a:.60} ago is too early; give at least the year 1") from None
    return _parse_iso(field, text)


def _parse_iso(field: str, text: str) -> datetime:
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(
            field, f"{text!a:.60} is no time; write 2030-01-31T09:00Z, or a wait such as 90s, 15m, 2h, 1d"
        ) from None
    if when.utcoffset() is None:
        raise InvalidInput(field, f"{text!a:.60} has no time zone; write {text.strip()}Z, or +01:00 behind it")
    return when


def instant(at: datetime | None) -> str:
    """A time of day in this machine's zone, and how long ago."""
    if at is None:
        return ""
    try:
        here = at.astimezone()
    except (OverflowError, ValueError):  # the very last days of the calendar, in another zone
        here = at
    return f"{here.isoformat(sep=' ', timespec='seconds')} ({ago(at)})"


def ago(at: datetime | None) -> str:
    """How long ago, roughly; `in ...` where it is yet to come."""
    if at is None:
        return ""
    seconds = (system.now() - at).total_seconds()
    since = length(abs(seconds))
    return f"in {since}" if seconds < 0 else f"{since} ago"


def length(seconds: float) -> str:
    """A length of time, roughly."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def clock_text(seconds: float) -> str:
    """A length of time to the second: 1:07, or 2:00:05."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
