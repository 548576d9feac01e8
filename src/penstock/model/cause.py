"""Why attempts fail: causes, of which each is a queue, a task, and the shape of an error."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from penstock.errors import InvalidInput
from penstock.model.checks import shown
from penstock.model.short_repr import ShortRepr

__all__ = ["Cause", "FailureHistory", "FailuresOfCause", "cause_id", "checked_cause"]

_DIGITS = 16
_HALF = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Cause(ShortRepr):
    """Dead letters that failed for the same reason.

    `shape` is what their errors have in common: the line that says what happened, with … for what differs from job to
    job. `dead` is how many there are now, `first_at` and `last_at` are when the first and the last of these failed, and
    `job_id` is the last. `last_hour` and `last_day` count the attempts that failed of it, also those of other jobs: in
    each five minutes of the hour, and in each hour of the day, the oldest first; the last is not over yet.
    """

    id: str
    queue: str
    task: str
    shape: str
    dead: int
    first_at: datetime
    last_at: datetime
    job_id: int
    last_hour: list[int] = field(default_factory=list)
    last_day: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FailuresOfCause(ShortRepr):
    """How many attempts failed of a cause, period by period."""

    id: str
    task: str
    shape: str
    failed: list[int]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FailureHistory(ShortRepr):
    """The answer of `app.failures`: how many attempts failed in each five minutes, for the most frequent causes.

    `began_at` tells the periods, the oldest first; the last is not over yet. `others` counts what failed of other
    causes. `unavailable` are the shards that did not answer, which are left out.
    """

    queue: str
    began_at: list[datetime] = field(default_factory=list)
    causes: list[FailuresOfCause] = field(default_factory=list)
    others: list[int] = field(default_factory=list)
    unavailable: list[str] = field(default_factory=list)


def cause_id(number: int) -> str:
    """The id of a cause, as it is stored, as users see it."""
    return f"{number & (2 * _HALF - 1):0{_DIGITS}x}"


def checked_cause(value: object) -> int:
    """The other way round."""
    if isinstance(value, str) and len(value) == _DIGITS and set(value) <= set("0123456789abcdef"):
        number = int(value, 16)
        return number - 2 * _HALF if number >= _HALF else number
    raise InvalidInput(
        "cause", f"{shown(value)} is not the id of a cause, {_DIGITS} hex digits; give that of one of app.causes()"
    )
