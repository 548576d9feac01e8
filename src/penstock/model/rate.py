"""Rates: how many jobs may start in a length of time, written "100/s", "30/m", "10/h" or "1/d".

A rate is a bucket of tokens that fills evenly and holds a second's worth, at least one: so many may start together
after a pause, and never more than that plus what came in since. Stored are starts a second.
"""

from __future__ import annotations

import re

from penstock.errors import InvalidInput
from penstock.model.checks import shown

__all__ = ["MOST_STARTS_A_SECOND", "checked_rate", "rate_text", "starts_a_second"]

MOST_STARTS_A_SECOND = 1_000_000.0
LEAST_STARTS_A_SECOND = 1 / (366 * 86_400)
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_RATE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)/([smhd])", re.ASCII)


def checked_rate(field: str, value: object) -> float:
    """Starts a second, of a rate as it is written."""
    written = _RATE.fullmatch(value) if isinstance(value, str) else None
    if written is None:
        raise InvalidInput(
            field, f"{shown(value)} is no rate; write how many a second, minute, hour or day, as in '100/s'"
        )
    rate = starts_a_second(written[0])
    if not LEAST_STARTS_A_SECOND <= rate <= MOST_STARTS_A_SECOND:
        raise InvalidInput(field, f"{shown(value)} is out of bounds; give one a year ('0.003/d') to '1000000/s'")
    return rate


def starts_a_second(rate: str) -> float:
    """The number that a rate stands for."""
    starts, _, unit = rate.partition("/")
    return float(starts) / UNITS[unit]


def rate_text(rate: float) -> str:
    """A rate as it is written, in the shortest unit that makes it a whole number."""
    for unit, seconds in UNITS.items():
        starts = rate * seconds
        if starts >= 0.5 and abs(starts - round(starts)) < 1e-9 * starts:
            return f"{round(starts)}/{unit}"
    return next(
        (f"{rate * seconds:.12g}/{unit}" for unit, seconds in UNITS.items() if rate * seconds >= 1),
        f"{rate * 86_400:.12g}/d",
    )
