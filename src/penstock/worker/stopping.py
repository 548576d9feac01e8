"""Whether a worker's part for one database was told to stop, when, and until when it may wait for what runs."""

from __future__ import annotations

from penstock.clock import system

__all__ = ["Stopping"]


class Stopping:
    """Told by whoever stops the worker, under the worker's lock; read by all."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._told_at = 0.0

    def tell(self, at: float) -> None:
        """End gently, and at that monotonic time without waiting any more."""
        if self._at is None:
            self._told_at = system.monotonic()
        self._at = at

    @property
    def is_told(self) -> bool:
        return self._at is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing is waited for any more."""
        return self._at is not None and system.monotonic() >= self._at

    def seconds_since_told(self) -> float:
        """Since it was told; 0 where it was not."""
        return 0.0 if self._at is None else system.monotonic() - self._told_at

    def seconds_since_over(self) -> float:
        """Since it was told and nothing is waited for any more; below 0 before."""
        return -1.0 if self._at is None else system.monotonic() - max(self._at, self._told_at)
