"""How often a worker asks for jobs: not again where that would find nothing."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from itertools import pairwise

import pytest
from tests.system.conftest import Execute, Working
from tests.system.facts import eventually

from penstock import App
from penstock.clock import Clock
from penstock.worker.backlog import SETTLED_TOGETHER
from penstock.worker.conductor import Conductor


class SleepNoting(Clock):
    """Notes how long the listener sleeps."""

    def __init__(self, sleeps: list[float]) -> None:
        self._sleeps = sleeps

    def sleep(self, seconds: float) -> None:
        self._sleeps.append(seconds)


def test_a_look_that_took_all_there_was_is_not_followed_by_another_right_away(
    app: App, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, wait = Conductor.turn, Conductor.wait
    acts: list[str] = []

    def note_turn(conductor: Conductor) -> bool:
        did_something = turn(conductor)
        acts.append("found" if conductor._leases else "turn")
        return did_something

    def note_wait(conductor: Conductor) -> None:
        acts.append("wait")
        wait(conductor)

    monkeypatch.setattr(Conductor, "turn", note_turn)
    monkeypatch.setattr(Conductor, "wait", note_wait)
    door = threading.Event()
    task = app.queue("q", partitions=1).task(name="t")(lambda: door.wait(60) and None)
    with working(app):
        for number in range(3):
            door.clear()
            task.enqueue()
            eventually(lambda: "found" in acts, "it was taken")
            door.set()
            eventually(lambda number=number: app.stats("q").total_completed == number + 1, "it ended")  # type: ignore[misc]
    assert "found" in acts
    assert ("found", "found") not in pairwise(acts)


def test_what_was_signalled_before_a_turn_needs_no_other_turn(
    app: App, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = Conductor.turn
    left: list[bool] = []

    def signal_first(conductor: Conductor) -> bool:
        conductor._signal.set()
        did_something = turn(conductor)
        left.append(conductor._signal.is_set())
        return did_something

    monkeypatch.setattr(Conductor, "turn", signal_first)
    app.queue("q", partitions=1).task(name="t")(lambda: None)
    with working(app):
        eventually(lambda: False in left, "it waits after its turn")


def test_while_quick_jobs_come_in_bulk_the_next_turn_waits_for_the_rest_to_be_over(
    app: App, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = Conductor.wait
    waited: list[bool] = []

    def note_rest(conductor: Conductor) -> None:
        wait(conductor)
        backlog, now = conductor._backlog, time.monotonic()
        # Where it was too slow to look again in time it is no bulk any more.
        if conductor._pace.is_bulk(now) and not (conductor._stop_request.is_made or backlog.returned):
            waited.append(now >= conductor._pace.next_at or len(backlog.done) >= SETTLED_TOGETHER)

    monkeypatch.setattr(Conductor, "wait", note_rest)
    task = app.queue("q", partitions=1).task(name="t")(lambda n: None)
    calls = 0
    with working(app):
        while len(waited) < 5:
            task.enqueue_many([{"n": n} for n in range(1_000)])
            calls += 1
            eventually(lambda done=calls * 1_000: app.stats("q").total_completed == done, "all are done")  # type: ignore[misc]
    assert all(waited)


def test_a_worker_that_slept_long_and_takes_one_job_goes_on_being_woken(
    app: App, working: Working, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.worker.conductor.AWAKE_SECONDS", 0.0)
    woken: list[int] = []
    monkeypatch.setattr("penstock.worker.conductor.workers.wake_up", lambda _, worker: woken.append(worker))
    task = app.queue("q", partitions=1).task(name="t")(lambda: None)
    with working(app, concurrency=1):
        eventually(lambda: execute("select 1 from penstock.sleeper"), "it sleeps")
        task.enqueue()
        eventually(lambda: app.stats("q").total_completed == 1, "it ended")
    assert woken == []


def test_the_listener_tells_the_conductor_when_its_rest_is_over(
    app: App, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    note_news = Conductor.note_news
    sleeps: list[float] = []
    # How often any listener had slept when each conductor was told.
    told: defaultdict[Conductor, list[int]] = defaultdict(list)

    def note(conductor: Conductor) -> None:
        told[conductor].append(len(sleeps))
        note_news(conductor)

    monkeypatch.setattr(Conductor, "rest_seconds", property(lambda _: 0.015))
    monkeypatch.setattr(Conductor, "note_news", note)
    monkeypatch.setattr("penstock.worker.listener.system", SleepNoting(sleeps))
    task = app.queue("q", partitions=1).task(name="t")(lambda: None)
    with working(app):
        eventually(lambda: told, "it listens")
        while all(len(each) < 2 for each in told.values()):
            before = app.stats("q").total_completed
            task.enqueue()
            eventually(lambda before=before: app.stats("q").total_completed > before, "it ended")  # type: ignore[misc]
    assert all(second > 0 for _, second in (each[:2] for each in told.values() if len(each) > 1))
    assert set(sleeps) == {0.015}
