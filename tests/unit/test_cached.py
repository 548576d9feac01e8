"""A cached answer is read once a second, by one reader at a time."""

from __future__ import annotations

import threading

import pytest

from penstock.clock import ManualClock
from penstock.metrics.cached import Cached


def test_it_is_read_again_when_a_second_has_passed() -> None:
    clock = ManualClock()
    answers = iter(range(10))
    cached = Cached(lambda: next(answers), clock=clock)
    assert [cached.get(), cached.get()] == [0, 0]
    clock.advance(0.99)
    assert cached.get() == 0
    clock.advance(0.01)
    assert [cached.get(), cached.get()] == [1, 1]


def test_whoever_comes_while_it_is_read_waits_and_gets_the_same() -> None:
    is_read, may_end = threading.Event(), threading.Event()
    readings: list[int] = []

    def read() -> int:
        readings.append(1)
        is_read.set()
        assert may_end.wait(60)
        return len(readings)

    cached = Cached(read, clock=ManualClock())
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(cached.get())) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert is_read.wait(60)
    may_end.set()
    for thread in threads:
        thread.join()
    assert found == [1] * 8


def test_what_could_not_be_read_is_read_again() -> None:
    problems = [OSError("no")]

    def read() -> int:
        if problems:
            raise problems.pop()
        return 7

    cached = Cached(read)
    with pytest.raises(OSError, match="no"):
        cached.get()
    assert cached.get() == 7
