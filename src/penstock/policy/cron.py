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
_EXAMPLE = "write five fields such as '0 3 * * *' (minute, hour, day of month, month, day of week)"
_EXAMPLE_OF_SIX = (
    "write six fields such as '30 0 3 * * *' (second, minute, hour, day of month, month, day of week), or five without "
    "the seconds"
)
_ANY_DAY = datetime(2026, 1, 1, tzinfo=UTC)


class Schedule:
    """The instants a cron expression names in a time zone. Takes aware datetimes, gives them in UTC."""

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self.expression = checked_name("expression", expression).strip()
        self.timezone = checked_name("timezone", timezone)
        self._zone = _zone(self.timezone)
        self._fields = _ALIASES.get(self.expression.lower(), self.expression)
        example = _EXAMPLE_OF_SIX if len(self._fields.split()) == 6 else _EXAMPLE
        try:
            next(CronSim(self._fields, _ANY_DAY.astimezone(self._zone)))
        except CronSimError as error:
            raise InvalidInput(
                "expression", f"{self.expression!a} is no cron expression ({error}); {example}"
            ) from None
        except StopIteration:
            raise InvalidInput("expression", f"{self.expression!a} names no day that ever comes; {example}") from None

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
