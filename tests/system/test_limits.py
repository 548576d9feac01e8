"""Limits and rates with workers at work: exact, in order, changed while they run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from tests.system.conftest import Execute, MakeApp, Working
from tests.system.facts import eventually

from penstock import App, InvalidInput, NotFound, Task
from penstock.worker.backlog import FAST_TICK_SECONDS
from penstock.worker.conductor import Conductor

# Workers that sleep until a place for the queue is free.
SLEEPERS = (
    "select distinct s.worker_id from penstock.sleeper as s join penstock.queue as q on q.id = s.queue_id"
    " join penstock.partition as p on p.queue_id = q.id and p.shard = penstock.here() where q.name = 'q'"
)


class Doors:
    """A handler whose jobs begin in the order noted here, and end when the test opens their door."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.running = 0
        self.most = 0
        self._opened: set[str] = set()
        self._changed = threading.Condition()

    def __call__(self, name: str) -> None:
        with self._changed:
            self.started.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
            self._changed.wait_for(lambda: name in self._opened or "all" in self._opened, 60)
            self.running -= 1

    def open(self, name: str) -> None:
        with self._changed:
            self._opened.add(name)
            self._changed.notify_all()


def declare(app: App, doors: Callable[[str], None], **options: object) -> Task[..., None]:
    # A limit is of each partition.
    return app.queue("q", partitions=1, **options).task(name="t")(doors)  # type: ignore[arg-type]


def test_attune_five_jobs_start_in_order_two_at_a_time_on_three_workers(make_app: MakeApp, working: Working) -> None:
    doors = Doors()
    apps = [make_app() for _ in range(3)]
    tasks = [declare(app, doors, limit=2) for app in apps]
    for name in "ABCDE":
        tasks[0].enqueue(name=name)
    with ExitStack() as stack:
        for app in apps:
            stack.enter_context(working(app, concurrency=4))
        for opened, started in (("", "AB"), ("B", "ABC"), ("A", "ABCD"), ("C", "ABCDE")):
            doors.open(opened)
            eventually(lambda: "".join(sorted(doors.started)) == started, f"{started} have started")  # noqa: B023
            assert doors.running <= 2
        doors.open("all")
        eventually(lambda: apps[0].stats("q").total_completed == 5, "all have ended")
    assert "".join(doors.started[2:]) == "CDE"
    assert doors.most == 2


def test_g6_a_limit_is_never_exceeded_by_eight_workers(make_app: MakeApp, working: Working, execute: Execute) -> None:
    lock = threading.Lock()
    running = most = 0

    def work(n: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.001)
        with lock:
            running -= 1

    apps = [make_app() for _ in range(8)]
    tasks = [app.queue("q", partitions=1, limit=4).task(name="t")(work) for app in apps]
    tasks[0].enqueue_many([{"n": n} for n in range(600)])
    for n in range(100):
        tasks[0].enqueue(n=n)
    seen: list[int] = []
    with ExitStack() as stack:
        for app in apps:
            stack.enter_context(working(app, concurrency=8))

        def is_done() -> bool:
            rows = execute(
                "select coalesce(sum(penstock.members_count(low, high, members)), 0)::int from penstock.lease"
            )
            seen.append(sum(row[0] for row in rows))
            return apps[0].stats("q").total_completed == 700

        eventually(is_done, "all have run")
    assert max(most, *seen) == 4


def test_a_raised_limit_starts_what_waits_and_a_lowered_one_starts_none(app: App, working: Working) -> None:
    doors = Doors()
    task = declare(app, doors, limit=1)
    for name in "ABCDEF":
        task.enqueue(name=name)
    with working(app, concurrency=8):
        eventually(lambda: doors.started == ["A"], "one runs")
        app.limit("q", limit=4)
        eventually(lambda: sorted(doors.started) == list("ABCD"), "four run")
        assert app.stats("q").limit == 4
        app.limit("q", limit=1)
        for name in "ABC":
            doors.open(name)
        eventually(lambda: app.stats("q").total_completed == 3, "three have ended")
        assert sorted(doors.started) == list("ABCD")
        doors.open("D")
        eventually(lambda: doors.started[4:] == ["E"], "the next runs")
        app.limit("q", limit=None)
        eventually(lambda: doors.started[4:] == ["E", "F"], "the last runs beside it")
        assert app.stats("q").limit is None
        doors.open("all")


def test_a_place_freed_by_a_worker_that_stops_goes_to_one_that_sleeps(
    make_app: MakeApp, working: Working, execute: Execute
) -> None:
    doors = Doors()
    first, second = make_app(), make_app()
    task = declare(first, doors, limit=1)
    declare(second, doors, limit=1)
    for name in "AB":
        task.enqueue(name=name)
    with ExitStack() as stack:
        stack.enter_context(working(first))
        eventually(lambda: doors.started == ["A"], "one runs")
        stack.enter_context(working(second))
        eventually(lambda: len(execute(SLEEPERS)) == 2, "both have nothing to take")
        first.stop()
        doors.open("A")
        eventually(lambda: doors.started == ["A", "B"], "the other took the next")
        doors.open("all")


def test_until_idle_waits_for_a_rate(app: App) -> None:
    task = app.queue("q", partitions=1, rate="20/s").task(name="t")(lambda n: n)
    task.enqueue_many([{"n": n} for n in range(30)])
    began = time.monotonic()
    assert app.work(until_idle=True).succeeded == 30
    # Twenty may start together; ten more need half a second of the rate.
    assert time.monotonic() - began >= 0.5


def test_a_worker_that_waits_for_a_rate_sleeps_no_longer_than_until_the_next_start(
    app: App, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = Conductor._patience
    waits: list[tuple[float, float]] = []

    def noted(conductor: Conductor) -> float:
        left = None if conductor._opens_at is None else conductor._opens_at - time.monotonic()
        seconds = patience(conductor)
        if left is not None:
            waits.append((seconds, left))
        return seconds

    monkeypatch.setattr(Conductor, "_patience", noted)
    task = app.queue("q", partitions=1, rate="12/m").task(name="t")(lambda n: n)
    task.enqueue_many([{"n": n} for n in range(2)])
    with working(app):
        eventually(lambda: app.stats("q").total_completed == 2, "the second started when it might")
    assert waits
    assert [wait for wait in waits if wait[0] > max(wait[1], FAST_TICK_SECONDS)] == []


def test_until_idle_waits_for_a_limit_that_another_worker_holds(
    make_app: MakeApp, working: Working, execute: Execute
) -> None:
    doors = Doors()
    first, second = make_app(), make_app()
    task = declare(first, doors, limit=1)
    declare(second, doors, limit=1)
    for name in "AB":
        task.enqueue(name=name)
    with working(first):
        eventually(lambda: doors.started == ["A"], "one runs")
        waiting = threading.Thread(target=lambda: second.work(until_idle=True))
        waiting.start()

        def has_looked() -> bool:
            return not waiting.is_alive() or len(execute(SLEEPERS)) == 2

        eventually(has_looked, "the second has looked and sleeps")
        assert waiting.is_alive()
        doors.open("all")
        waiting.join()
        eventually(lambda: first.stats("q").total_completed == 2, "both have ended")


def test_a_limit_does_not_slow_other_queues_of_the_same_worker(app: App, working: Working) -> None:
    doors = Doors()
    task = declare(app, doors, limit=1)
    plain = app.queue("plain").task(name="t")(lambda n: n)
    for name in "AB":
        task.enqueue(name=name)
    plain.enqueue_many([{"n": n} for n in range(500)])
    with working(app, concurrency=4):
        eventually(lambda: doors.started == ["A"], "one runs")
        eventually(lambda: app.stats("plain").total_completed == 500, "the others ran beside it")
        assert doors.started == ["A"]
        doors.open("all")
        eventually(lambda: app.stats("q").total_completed == 2, "and the next followed")


def test_limits_that_cannot_be_are_refused_by_name(app: App) -> None:
    app.queue("q")
    app.queue("shared", per_key_rate="1/s")
    for field, limits in (
        ("limit", {"limit": 0}),
        ("rate", {"rate": "fast"}),
        ("per_key_rate", {"per_key_rate": "1/s"}),
        ("weights", {"weights": {"a": 1}}),
        ("order", {"order": "key"}),
        ("max_wait", {"max_wait": -1}),
    ):
        with pytest.raises(InvalidInput) as refused:
            app.limit("q", **limits)
        assert refused.value.field == field
    with pytest.raises(
        InvalidInput,
        match="nothing to change: give run, limit, total_limit, rate, total_rate, per_key_rate, weights, max_length",
    ):
        app.limit("q")
    with pytest.raises(InvalidInput, match="only rule about keys"):
        app.limit("shared", per_key_rate=None)
    app.limit("shared", per_key_rate="5/s", limit=3)
    with pytest.raises(NotFound):
        app.limit("nowhere", limit=1)
