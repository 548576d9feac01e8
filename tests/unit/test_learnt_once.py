"""msgspec learns the type of an annotation in one thread at a time, and in no fork: half learnt it ends the process."""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from penstock import forking
from penstock.task import conversion
from penstock.task.arguments import Arguments

seen: list[tuple[bool, int]] = []


def note_and_give(kind: Any) -> Any:
    """Runs while msgspec learns `Order`: whether another thread could begin to, and how many a fork would wait for."""
    free: list[bool] = []
    other = threading.Thread(target=lambda: free.append(conversion._learning.acquire(blocking=False)))
    other.start()
    other.join()
    seen.append((free[0], forking.between_forks._inside))
    return kind


class Order(msgspec.Struct):
    number: note_and_give(int)  # type: ignore[valid-type]


def handle(order: Order) -> None: ...


def test_nobody_else_learns_a_type_meanwhile_and_no_fork_comes() -> None:
    assert Arguments(handle).decode('{"order":{"number":1}}') == {"order": Order(1)}
    assert (False, 1) in seen
    assert all(is_held == (False, 1) for is_held in seen)
    assert conversion._learning.acquire(blocking=False)
    conversion._learning.release()
