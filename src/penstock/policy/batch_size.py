"""How many jobs a task's handler is given at once, and how long the first of them waits for the others."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MOST_TOGETHER", "BatchSize"]

# However many slots are free, and however large batches are, no more jobs than this are taken together.
MOST_TOGETHER = 8_192


class BatchSize(NamedTuple):
    """What was declared for one task."""

    jobs: int
    wait_seconds: float = 0.0
