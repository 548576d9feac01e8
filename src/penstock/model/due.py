"""What is due when: how many scheduled jobs, in spans of time that begin now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

__all__ = ["SPANS", "Due", "DueSpan"]

Span = Literal["minute", "ten-minutes", "hour", "six-hours", "day", "week", "later"]
SPANS: tuple[Span, ...] = get_args(Span)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueSpan:
    """The jobs that are due by `until` and not in the span before; the first has those that are overdue, too.

    Where not `is_exact` there are so many at least: no more were looked at. The last span has no end.
    """

    name: Span
    until: datetime | None
    jobs: int
    is_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The answer of `app.due`. `unavailable` are the shards that did not answer."""

    spans: list[DueSpan]
    unavailable: list[str]
