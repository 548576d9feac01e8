"""A throttled log: what goes wrong again and again is logged now and then, the same words at most once a minute."""

from __future__ import annotations

import logging

from penstock.clock import system

__all__ = ["ThrottledLog"]

AGAIN_SECONDS = 60.0


class ThrottledLog:
    """A log for what may come many times a second. Used by one thread."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: dict[tuple[str, ...], float] = {}

    def warning(self, text: str, *values: object, exc_info: BaseException | None = None) -> None:
        """Warn, unless that was done within the minute; of the same kind of exception once, too."""
        now = system.monotonic()
        said = (text, *map(str, values), type(exc_info).__name__)
        if now - self._told.get(said, -AGAIN_SECONDS) >= AGAIN_SECONDS:
            self._told = {each: at for each, at in self._told.items() if now - at < AGAIN_SECONDS}
            self._told[said] = now
            self._log.warning(text, *values, exc_info=exc_info)
