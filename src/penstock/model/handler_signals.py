"""What a handler may say about its own job, by raising it.

`Retry` asks for another attempt and counts this one; `Snooze` asks to be run later and counts nothing; `Discard`
ends the job without calling it a failure. A wait of 0 means at once; `Retry()` leaves the wait to the task's
backoff. They are not errors of Penstock, so `except PenstockError` lets them pass.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.errors import InvalidInput
from penstock.model.checks import checked_delay

__all__ = ["Discard", "Retry", "Snooze"]


class Retry(Exception):
    """Run the job again; this attempt counts. `after`: seconds or a timedelta, or None for the task's backoff."""

    def __init__(self, after: float | timedelta | None = None) -> None:
        self.after: float | None = None if after is None else checked_delay("after", after)
        super().__init__("retry" if self.after is None else f"retry after {self.after:g} s")

    def __reduce__(self) -> tuple[Any, ...]:
        return Retry, (self.after,)


class Snooze(Exception):
    """Run the job again later; this attempt does not count. `for_`: seconds or a timedelta."""

    def __init__(self, for_: float | timedelta) -> None:
        self.for_: float = checked_delay("for_", for_)
        super().__init__(f"snooze for {self.for_:g} s")

    def __reduce__(self) -> tuple[Any, ...]:
        return Snooze, (self.for_,)


class Discard(Exception):
    """End the job now, as discarded, without another attempt."""

    def __init__(self, reason: str = "discarded by its handler") -> None:
        if not isinstance(reason, str):
            raise InvalidInput(
                "reason", f"text is needed, not {type(reason).__name__}; say in words why the job is discarded"
            )
        self.reason = reason
        super().__init__(reason)
