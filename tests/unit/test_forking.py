"""A fork waits for the moments in which a library holds a lock that a child could not make anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator

import psycopg
import pytest
from tests.system.forks import Forked

from penstock import forking
from penstock.storage.connection.breaker import Probe
from penstock.storage.connection.flow import Flow


class Step:
    """A step in another thread, which is under way until it is ended."""

    def __init__(self) -> None:
        self.began, self._may_end = threading.Event(), threading.Event()
        self.has_ended = False
        self.thread = threading.Thread(target=lambda: list(forking.steps_between_forks(self._steps())))

    def _steps(self) -> Generator[None, None, None]:
        self.began.set()
        self._may_end.wait(30)
        self.has_ended = True
        yield

    def begin(self) -> None:
        self.thread.start()
        assert self.began.wait(30)

    def end(self) -> None:
        self._may_end.set()


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Generator[Step, None, None]:
    monkeypatch.setattr(forking, "PATIENCE_SECONDS", 30.0)
    step = Step()
    step.begin()
    yield step
    step.end()
    step.thread.join()


def test_a_fork_waits_for_the_end_of_a_step(step: Step) -> None:
    threading.Timer(0.2, step.end).start()
    assert Forked(lambda: step.has_ended).answer() is True


def test_no_step_begins_while_a_fork_waits(step: Step) -> None:
    later = Step()
    told: list[bool] = []
    forker = threading.Thread(target=lambda: told.append(Forked(later.began.is_set).answer()))
    forker.start()
    until = time.monotonic() + 30
    while not forking.between_forks._is_forking and time.monotonic() < until:
        time.sleep(0.001)
    later.thread.start()
    # Time to begin, if it could.
    later.began.wait(0.2)
    step.end()
    forker.join()
    assert told == [False]
    assert later.began.wait(30)
    later.end()
    later.thread.join()


def test_a_fork_does_not_wait_for_ever(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "PATIENCE_SECONDS", 0.01)
    assert Forked(lambda: step.has_ended).answer() is False


def test_a_child_has_steps_of_its_own(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "PATIENCE_SECONDS", 0.01)

    def fork_again() -> bool:
        monkeypatch.setattr(forking, "PATIENCE_SECONDS", 30.0)
        return bool(Forked(lambda: list(forking.steps_between_forks(x for x in [1])) == [1]).answer())

    assert Forked(fork_again).answer()


def test_steps_give_and_take_what_they_would() -> None:
    def add_up() -> Generator[int, int, int]:
        first = yield 1
        second = yield 2
        return first + second

    steps = forking.steps_between_forks(add_up())
    assert (next(steps), steps.send(10)) == (1, 2)
    with pytest.raises(StopIteration) as end:
        steps.send(20)
    assert end.value.value == 30


@pytest.mark.parametrize("kind", [Flow, Probe])
def test_connections_are_made_in_such_steps(
    kind: type[psycopg.Connection[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside: list[int] = []
    monkeypatch.setattr(forking._Gate, "__enter__", lambda gate: inside.append(1))
    monkeypatch.setattr(forking._Gate, "__exit__", lambda gate, *_: None)
    with pytest.raises(psycopg.OperationalError):
        kind.connect("host=127.0.0.1 port=1 connect_timeout=2")
    assert inside
