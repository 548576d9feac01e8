"""A cached answer: what takes a while to read is read at most once a second, by one reader at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.clock import Clock, system

__all__ = ["Cached"]

T = TypeVar("T")


class Cached(Generic[T]):
    """Safe to use from any number of threads: those that come while it is read wait, and get the same."""

    def __init__(self, read: Callable[[], T], *, seconds: float = 1.0, clock: Clock = system) -> None:
        self._read = read
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._found: tuple[float, T] | None = None

    def get(self) -> T:
        """The answer, at most so old as it may be."""
        asked_at = self._clock.monotonic()
        with self._lock:
            if self._found is not None and (self._found[0] >= asked_at or asked_at - self._found[0] < self._seconds):
                return self._found[1]
            answer = self._read()
            self._found = self._clock.monotonic(), answer
            return answer
