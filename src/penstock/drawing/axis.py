"""Steps of the axes: how long a moment is, where ages are cut, and which values stand beside a plot."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

__all__ = [
    "AGES_SECONDS",
    "MOST_MOMENTS",
    "find_labelled",
    "logarithmic",
    "logarithmic_place",
    "moment_seconds",
    "moment_start",
    "round_top",
]

MOST_MOMENTS = 72
MOST_LABELS = 6
AGES_SECONDS = (1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0)

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_MARKS = (
    0.000_01,
    0.000_1,
    0.001,
    0.01,
    0.1,
    1.0,
    10.0,
    60.0,
    600.0,
    3_600.0,
    21_600.0,
    86_400.0,
    864_000.0,
    8_640_000.0,
    86_400_000.0,
)
_STEPS = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 28 * _DAY),
)


def moment_seconds(seconds: float) -> float:
    """The shortest round step of which at most 72 cover that time."""
    for step in _STEPS:
        if seconds < step * (MOST_MOMENTS - 1):
            return float(step)
    return float(_DAY * math.ceil(seconds / _DAY / (MOST_MOMENTS - 1)))


def moment_start(first: datetime, step: float) -> datetime:
    """The last whole step before the first end, counted from midnight."""
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    passed = (first - midnight).total_seconds()
    return midnight + timedelta(seconds=math.floor(passed / step + 1e-9) * step if step < _DAY else 0)


def find_labelled(start: datetime, step: float, count: int) -> list[int]:
    """Which of the moments have a label: a few, at times as round as can be; the first where there is no such."""
    fits = (mark for mark in _STEPS if mark >= step and mark % step == 0 and count * step <= MOST_LABELS * mark)
    apart = next(fits, step * math.ceil(count / MOST_LABELS))
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    offset = (start - midnight).total_seconds() if apart < _DAY else 0.0
    found = [number for number in range(count) if round((offset + number * step) / apart, 6) % 1 == 0]
    return found or [0]


def round_top(highest: float) -> float:
    """The round number at which an axis ends that has to reach `highest`: 1, 1.5, 2, 3, 4, 5, 6, 8 and so on."""
    if highest <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(highest))
    return next(size * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if size * step >= highest * (1 - 1e-12))


def marks(top: float) -> list[float]:
    """Where an axis of whole numbers is marked between 0 and its top: at halves or thirds, if those are whole too."""
    parts = next((parts for parts in (2, 3) if top % parts == 0), 1)
    return [top * part / parts for part in range(parts + 1)]


def logarithmic(lowest: float, highest: float) -> tuple[float, ...]:
    """The marks of a logarithmic axis of seconds that holds these values: decades up to 10 s, then as clocks count."""
    low = max((mark for mark in _MARKS[:-1] if mark <= lowest), default=_MARKS[0])
    high = next((mark for mark in _MARKS if mark >= highest and mark > low), _MARKS[-1])
    return tuple(mark for mark in _MARKS if low <= mark <= high)


def logarithmic_place(value: float, marks: tuple[float, ...]) -> float:
    """Where on such an axis a value lies, from 0 to 1."""
    low, high = math.log(marks[0]), math.log(marks[-1])
    return min(1.0, max(0.0, (math.log(max(value, marks[0])) - low) / (high - low)))
