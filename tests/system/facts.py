"""Waiting for facts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Long enough for any machine; nothing is concluded from how long it took.
PATIENCE_SECONDS = 300.0


def eventually(fact: Callable[[], T], what: str) -> T:
    """Wait for a fact; its value."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := fact()):
        if time.monotonic() > deadline:
            raise AssertionError(f"it never came to this: {what}")
        time.sleep(0.005)
    return value
