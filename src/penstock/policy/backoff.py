"""How long a failed job waits before its next attempt.

Without a word from the task the wait doubles, from one second up to an hour, a fifth shorter or longer by chance,
so that jobs which failed together do not come back together. A task may give seconds, or a function of the attempt
that just failed (1 for the first). Seconds that a task gave are never shortened, only spread: up to a fifth longer, at
most a minute; 0 means at once. What a handler asks for by `Retry(after=…)` is taken as it is. A function that raises or
answers nonsense costs a job nothing: the default is used, and the problem is reported with the wait.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from penstock.errors import InvalidInput
from penstock.model.checks import checked_delay
from penstock.model.error_text import summarize

__all__ = ["Backoff", "Wait"]

LONGEST_DEFAULT_SECONDS = 3_600.0
JITTER = 0.2
LONGEST_ADDED_SECONDS = 60.0


class Wait(NamedTuple):
    """How long to wait, and what was wrong with the task's own backoff, if anything was."""

    seconds: float
    problem: str | None = None


class Backoff:
    """A task's backoff, checked when the task is declared."""

    def __init__(self, given: float | timedelta | Callable[[int], float | timedelta] | None = None) -> None:
        self._function: Callable[[int], float | timedelta] | None = None
        self._seconds: float | None = None
        if callable(given):
            if inspect.iscoroutinefunction(given):
                raise InvalidInput("backoff", "an async function cannot be asked; give seconds or a plain function")
            self._function = given
        elif given is not None:
            self._seconds = checked_delay("backoff", given)

    def wait(self, attempt: int, unit: float) -> Wait:
        """The wait after this attempt, the first being 1. `unit` is a random number from 0 to 1."""
        if self._function is not None:
            try:
                seconds = checked_delay("backoff", self._function(attempt))
            except Exception as error:  # The user's function may raise anything, and its job must live on.
                return Wait(_default(attempt, unit), f"backoff for attempt {attempt}: {summarize(error)}")
            return Wait(_spread(seconds, unit))
        if self._seconds is not None:
            return Wait(_spread(self._seconds, unit))
        return Wait(_default(attempt, unit))


def _default(attempt: int, unit: float) -> float:
    # The exponent is bounded before the power is taken: attempts go up to 32,767, floats only to 2**1023.
    doubled = 2.0 ** min(max(attempt, 1) - 1, 12)
    return min(doubled, LONGEST_DEFAULT_SECONDS) * (1 - JITTER + 2 * JITTER * unit)


def _spread(seconds: float, unit: float) -> float:
    return seconds + min(seconds * JITTER, LONGEST_ADDED_SECONDS) * unit
