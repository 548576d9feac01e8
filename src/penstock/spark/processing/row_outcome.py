"""What a batch handler says of each row: it went well, it should be tried again, it cannot be done."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from penstock.errors import InvalidInput
from penstock.model.checks import checked_delay

__all__ = ["Dead", "Ok", "Outcome", "RetryAfter"]


@dataclass(frozen=True, slots=True)
class Ok:
    """The job succeeded; `result` is what `app.result` gives."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Run the job again in so many seconds, 0 for at once; where its attempts have run out it is a dead letter."""

    seconds: float | timedelta
    error: str = "the handler asked for another attempt"

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", checked_delay("seconds", self.seconds))
        _check_text("error", self.error)


@dataclass(frozen=True, slots=True)
class Dead:
    """The job cannot be done: it goes to the dead letters, whatever attempts it has left."""

    reason: str

    def __post_init__(self) -> None:
        _check_text("reason", self.reason)


Outcome: TypeAlias = Ok | RetryAfter | Dead


def _check_text(field: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInput(field, f"text is needed, not {type(value).__name__}; say in words what went wrong")
