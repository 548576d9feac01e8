"""Duties of upkeep that fail.

One that fails is tried again with the next round, and mostly that is all: a lock was held, a connection broke. One that
goes on failing in the same way is told: once in the log, and in the database for as long as it lasts, where the doctor
and `explain` find it. Whoever gets the duty done takes that back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from penstock.clock import Clock, system
from penstock.errors import PartitionUnavailable
from penstock.storage.connection.error_meaning import may_repeat

__all__ = ["NOTE_SECONDS", "TOLD_SECONDS", "Troubles"]

log = logging.getLogger("penstock")

# A failure that has lasted for less is not told.
TOLD_SECONDS = 10.0
# So often it is noted again: a note that is much older was left by a worker that has ended.
NOTE_SECONDS = 30.0


@dataclass(slots=True)
class _Failing:
    kind: tuple[type[BaseException], str | None]
    since: float
    noted_at: float | None = None


class Troubles:
    """Of one round of upkeep. `note` writes down a duty, its error and for how many seconds; None: it is done again."""

    def __init__(self, note: Callable[[str, str | None, float], None], clock: Clock = system) -> None:
        self._note = note
        self._clock = clock
        self._failing: dict[str, _Failing] = {}
        # By duty: what went wrong the last time.
        self.errors: dict[str, str] = {}

    def note_failure(self, duty: str, error: BaseException) -> None:
        """A duty raised this."""
        now = self._clock.monotonic()
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        self.errors[duty] = said
        kind = (type(error), getattr(error, "sqlstate", None))
        failing = self._failing.get(duty)
        if failing is None or failing.kind != kind:
            self._failing[duty] = _Failing(kind, now)
            if not may_repeat(error) and not isinstance(error, PartitionUnavailable):
                log.warning("upkeep's %s failed and is tried again: %s", duty, said)
            return
        lasted = now - failing.since
        if lasted < TOLD_SECONDS or (failing.noted_at is not None and now - failing.noted_at < NOTE_SECONDS):
            return
        if failing.noted_at is None:
            log.warning(
                "upkeep's %s fails in the same way for %.0f s now and goes on being tried: %s", duty, lasted, said
            )
        failing.noted_at = now
        self._note(duty, said, lasted)

    def note_done(self, duty: str) -> None:
        """A duty was done."""
        self.errors.pop(duty, None)
        failing = self._failing.pop(duty, None)
        if failing is not None and failing.noted_at is not None:
            log.info("upkeep's %s is done again", duty)
            self._note(duty, None, 0.0)
