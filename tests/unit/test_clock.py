"""Time and randomness, and the clock that tests move by hand."""

from __future__ import annotations

from datetime import UTC, timedelta

from penstock.clock import Clock, ManualClock, system


def test_the_system_clock_gives_aware_instants_and_seconds_that_only_grow() -> None:
    assert system.now().tzinfo is UTC
    assert system.monotonic() <= system.monotonic()
    system.sleep(0)


def test_randomness_lies_in_its_bounds_and_differs_from_draw_to_draw() -> None:
    units = [system.random_unit() for _ in range(100)]
    tokens = [system.random_token() for _ in range(100)]
    assert all(0 <= unit < 1 for unit in units)
    assert all(0 <= token < 2**63 for token in tokens)
    assert len(set(units)) == len(set(tokens)) == 100


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock()
    start, origin = clock.now(), clock.monotonic()
    assert (clock.now(), clock.monotonic()) == (start, origin)
    clock.sleep(5)
    clock.advance(2.5)
    assert clock.now() - start == timedelta(seconds=7.5)
    assert clock.monotonic() - origin == 7.5


def test_a_manual_clock_draws_the_same_again() -> None:
    first, second = ManualClock(seed=3), ManualClock(seed=3)
    assert isinstance(first, Clock)
    assert [first.random_unit(), first.random_token()] == [second.random_unit(), second.random_token()]
