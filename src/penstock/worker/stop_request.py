"""A stop request: whether a database worker was told to stop, when, and until when it may wait for what runs."""

from __future__ import annotations

from penstock.clock import system

__all__ = ["StopRequest"]


class StopRequest:
    """Made by whoever stops the worker, under the worker's lock; read by all."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._made_at = 0.0

    def make(self, at: float) -> None:
        """End gently, and at that monotonic time without waiting any more."""
        if self._at is None:
            self._made_at = system.monotonic()
        self._at = at

    @property
    def is_made(self) -> bool:
        return self._at is not None

    @property
    def is_grace_over(self) -> bool:
        """Whether the time that running handlers were given has passed."""
        return self._at is not None and system.monotonic() >= self._at

    def seconds_since_made(self) -> float:
        """Since it was made; 0 where it was not."""
        return 0.0 if self._at is None else system.monotonic() - self._made_at

    def seconds_since_grace(self) -> float:
        """Since the grace was over; below 0 before."""
        return -1.0 if self._at is None else system.monotonic() - max(self._at, self._made_at)
