"""A duty of upkeep that fails again and again is told once, noted while it lasts, and taken back."""

from __future__ import annotations

import logging

import psycopg
import pytest

from penstock.clock import ManualClock
from penstock.upkeep.troubles import NOTE_SECONDS, TOLD_SECONDS, Troubles


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.noted: list[tuple[str, str | None]] = []
        self.troubles = Troubles(lambda duty, error, _: self.noted.append((duty, error)), self.clock)

    def fail(self, error: BaseException, seconds: float) -> None:
        """Fail every two seconds for so long."""
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            self.troubles.note_failure("carry", error)
            self.clock.advance(2.0)


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    caplog.set_level(logging.INFO, "penstock")
    return World()


def test_a_lock_that_is_held_for_a_moment_is_not_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.fail(psycopg.errors.LockNotAvailable("held"), TOLD_SECONDS)
    world.troubles.note_done("carry")
    assert (world.noted, caplog.messages) == ([], [])


def test_what_lasts_is_told_once_noted_while_it_lasts_and_taken_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.fail(psycopg.errors.LockNotAvailable("held\nby somebody"), TOLD_SECONDS + 2 * NOTE_SECONDS)
    assert world.noted == [("carry", "held")] * 2
    assert [message for message in caplog.messages if "fails in the same way" in message] == caplog.messages
    assert len(caplog.messages) == 1
    assert world.troubles.errors == {"carry": "held"}
    world.troubles.note_done("carry")
    assert world.noted[2:] == [("carry", None)]
    assert world.troubles.errors == {}


def test_what_should_not_happen_is_told_at_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.fail(ValueError("no"), 4.0)
    assert caplog.messages == ["upkeep's carry failed and is tried again: no"]


def test_another_error_begins_anew(world: World) -> None:
    for error in (psycopg.errors.LockNotAvailable("a"), psycopg.errors.DeadlockDetected("b")) * 3:
        world.fail(error, TOLD_SECONDS - 2.0)
    assert world.noted == []
