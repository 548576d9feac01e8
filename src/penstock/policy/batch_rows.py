"""How many jobs a batch handler is given at once, where its user has not said.

Few at first, and twice as many each time while a batch runs for less than a moment: what is quick wants large batches,
what is slow must not keep thousands of jobs that others could run.
"""

from __future__ import annotations

__all__ = ["BatchRows"]

FEWEST, MOST = 32, 4_096
MOMENT_SECONDS = 0.5


class BatchRows:
    """What one slot has learned about its handler. `wanted`: how many rows to ask for next."""

    def __init__(self, given: int | None) -> None:
        self._is_given = given is not None
        self.wanted = FEWEST if given is None else given

    def observe(self, rows: int, seconds: float) -> None:
        """Learn how long a batch took."""
        if not self._is_given and rows >= self.wanted and seconds < MOMENT_SECONDS:
            self.wanted = min(self.wanted * 2, MOST)
