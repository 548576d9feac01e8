"""When a cron is due: a cron expression read in a time zone.

Five fields (minute, hour, day of month, month, day of week), six with seconds in front, or `@hourly`, `@daily`,
`@weekly`, `@monthly`, `@yearly`. Where clocks change it does what Debian's cron does. A fixed time that is skipped
in spring is due once, at the first minute after the gap; a fixed time that comes twice in autumn is due once, the
first time; a schedule that repeats by the hour or the minute goes by time passed and sees no gap and no repetition.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from penstock.errors import InvalidInput
from penstock.model.checks import checked_name, checked_run_at

__all__ = ["Schedule"]

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
# What each field may be, by the name that the library calls it by, in their order.
_FIELDS = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L for the last, LW for the last weekday",
    "month": "1 to 12, or JAN to DEC",
    "day-of-week": "0 (Sunday) to 7, or SUN to SAT, MON#2 for the second, 5L for the last Friday",
}
_NEVER = "names no day that ever comes; mend its day of month, month or day of week"
_ANY_DAY = datetime(2026, 1, 1, tzinfo=UTC)


class Schedule:
    """The instants a cron expression names in a time zone. Takes aware datetimes, gives them in UTC."""

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self.expression = checked_name("expression", expression).strip()
        self.timezone = checked_name("timezone", timezone)
        self._zone = _zone(self.timezone)
        self._fields = _ALIASES.get(self.expression.lower(), self.expression)
        try:
            next(CronSim(self._fields, _ANY_DAY.astimezone(self._zone)))
        except (CronSimError, StopIteration) as error:
            raise InvalidInput("expression", f"{self.expression!a} {_explain(self._fields, str(error))}") from None

    def next_after(self, instant: datetime) -> datetime:
        """The first time it is due later than this instant."""
        instant = checked_run_at(instant, "instant")
        # The library goes by the clock on the wall, so in an hour that comes twice its first answers may be past.
        return next(due for due in self._from(instant) if due > instant)

    def previous_at_or_before(self, instant: datetime) -> datetime:
        """The last time it was due up to this instant, that instant included."""
        instant = checked_run_at(instant, "instant")
        # Backwards the library passes over what a gap has moved, so its answer only says where to look forwards from.
        start = (instant + timedelta(seconds=1)).astimezone(self._zone)
        for earlier in CronSim(self._fields, start, reverse=True):
            due = self.next_after(earlier.astimezone(UTC) - timedelta(seconds=1))
            if due <= instant:
                break
        while (following := self.next_after(due)) <= instant:
            due = following
        return due

    def _from(self, instant: datetime) -> Iterator[datetime]:
        for due in CronSim(self._fields, instant.astimezone(self._zone)):
            yield due.astimezone(UTC)


def _explain(expression: str, error: str) -> str:
    """What is wrong with an expression, by the field that the library's error names."""
    parts = expression.split()
    if expression.startswith("@"):
        return f"is no short form; write {', '.join(_ALIASES)}, or five fields such as '0 3 * * *'"
    if len(parts) not in (5, 6):
        return (
            f"has {len(parts)} field{'s' * (len(parts) != 1)}; write five (minute, hour, day of month, month, day of "
            "week) such as '0 3 * * *', or six with the seconds in front"
        )
    name = error.removeprefix("Bad ")
    if name not in _FIELDS:
        return _NEVER
    part = parts[list(_FIELDS).index(name) - (6 - len(parts))]
    if name == "day-of-month" and _is_schedule([*parts[:-2], "*", parts[-1]]):
        return _NEVER
    return f"has {part!a} for the {name.replace('-', ' ')}; give {_FIELDS[name]}; or *, 1,15, 1-5, */5 and the like"


def _is_schedule(parts: list[str]) -> bool:
    try:
        CronSim(" ".join(parts), _ANY_DAY)
    except CronSimError:
        return False
    return True


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput(
            "timezone",
            f"{name!a} is no time zone known here; give a name such as 'Europe/Berlin' "
            "(where the system has no time zones, install the package tzdata)",
        ) from None
