"""A total_limit with workers at work, on one database and on two shards: exact, and where the work is."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from tests.system.conftest import MakeApp, Working
from tests.system.facts import eventually
from tests.system.test_limits import Doors

from penstock import App, InvalidInput, NotFound, PartitionUnavailable
from penstock.app.declarations import Declarations

KINDS: list[dict[str, Any]] = [{}, {"order": "key"}]
kinds = pytest.mark.parametrize("options", KINDS, ids=["plain", "ordered"])


class Counted:
    """Jobs that take a moment, and how many ran at once. The first wait until so many run together."""

    def __init__(self, together: int = 1) -> None:
        self.running = self.most = self.done = 0
        self._together = together
        self._changed = threading.Condition()

    def __call__(self, n: int) -> None:
        with self._changed:
            self.running += 1
            self.most = max(self.most, self.running)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.most >= self._together, 60)
        # Nothing waits for this: were too many let in, they would meet.
        time.sleep(0.005)
        with self._changed:
            self.running -= 1
            self.done += 1


@kinds
def test_g6_a_total_limit_is_never_exceeded_in_all_partitions_together(
    make_app: MakeApp, working: Working, options: dict[str, Any]
) -> None:
    counted = Counted(together=5)
    apps = [make_app() for _ in range(3)]
    tasks = [app.queue("q", partitions=4, total_limit=5, **options).task(name="t", key="n")(counted) for app in apps]
    tasks[0].enqueue_many([{"n": n} for n in range(300)])
    with ExitStack() as stack:
        for app in apps:
            stack.enter_context(working(app, concurrency=8))
        eventually(lambda: counted.done == 300, "all have run")
    assert counted.most == 5
    stats = apps[0].stats("q")
    assert (stats.limit, stats.total_completed) == (5, 300)
    assert sum(part.limit or 0 for part in stats.partitions) <= 5


@pytest.mark.parametrize("error", [PartitionUnavailable("away"), NotFound("deleted just now")])
def test_what_goes_wrong_after_a_limit_was_set_does_not_look_as_if_it_had_not_been(
    app: App, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    app.queue("q")
    app.migrate()

    def fail(self: Declarations, name: str) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Declarations, "fresh_entry", fail)
        app.limit("q", total_limit=3)
    assert app.stats("q").rules.total_limit == 3


@kinds
def test_all_permits_follow_the_work_from_one_partition_to_another(
    app: App, working: Working, options: dict[str, Any]
) -> None:
    doors = Doors()
    task = app.queue("q", partitions=2, total_limit=4, **options).task(name="t", key="name")(doors)
    ours: dict[str, list[str]] = {"q": [], "q__p1": []}
    for n in range(100):
        job = app.job(task.enqueue(name=f"k{n}"))
        ours[job.partition].append(f"k{n}")
    first, second = ours.values()
    with working(app, concurrency=16):
        eventually(lambda: doors.running == 4, "as many run as may")
        for name in first:
            doors.open(name)
        eventually(lambda: len(doors.started) == len(first) + 4 and doors.running == 4, "the other partition has all")
        assert set(doors.started) - set(first) <= set(second)
        doors.open("all")
        eventually(lambda: app.stats("q").total_completed == 100, "all have ended")
    assert doors.most == 4


def test_a_permit_goes_round_where_there_are_fewer_than_partitions_with_work(app: App, working: Working) -> None:
    counted = Counted()
    task = app.queue("q", partitions=3, total_limit=1).task(name="t", key="n")(counted)
    task.enqueue_many([{"n": n} for n in range(3_000)])
    with working(app, concurrency=4):
        eventually(lambda: all(part.total_completed > 5 for part in app.stats("q").partitions), "all have had turns")
    assert counted.most == 1


@kinds
def test_a_total_limit_is_changed_live(app: App, working: Working, urls: list[str], options: dict[str, Any]) -> None:
    doors = Doors()
    task = app.queue("q", partitions=2, **options).task(name="t", key="name")(doors)
    for n in range(40):
        task.enqueue(name=f"k{n}")
    app.limit("q", total_limit=2)
    with working(app, concurrency=16):
        eventually(lambda: doors.running == 2, "two run")
        app.limit("q", total_limit=6)
        eventually(lambda: doors.running == 6, "six run")
        assert app.stats("q").limit == 6
        app.limit("q", total_limit=1)
        # Until a partition has heard of it, it starts jobs with the permits it had.
        eventually(lambda: not any(each.limit for each in app.stats("q").partitions), "no permit is left")
        assert doors.running == 6
        for name in doors.started[:5]:
            doors.open(name)
        eventually(lambda: app.stats("q").total_completed == 5, "one runs")
        with psycopg.connect(urls[0], autocommit=True) as lead:
            held = "select sum(greatest(held, permits)) from penstock.permit_ledger"
            eventually(lambda: lead.execute(held).fetchone() == (1,), "the ledger has heard of the ends")
        assert len(doors.started) == 6
        app.limit("q", total_limit=None)
        eventually(lambda: doors.running > 6, "many run")
        assert app.stats("q").limit is None
        doors.open("all")


def test_a_worker_that_ends_when_idle_waits_for_permits(app: App) -> None:
    counted = Counted()
    task = app.queue("q", partitions=3, total_limit=1).task(name="t", key="n")(counted)
    task.enqueue_many([{"n": n} for n in range(60)])
    app.work(until_idle=True)
    assert (counted.done, counted.most) == (60, 1)


def test_a_total_limit_goes_through_a_resize(app: App, working: Working) -> None:
    counted = Counted(together=3)
    task = app.queue("q", partitions=2, order="key", total_limit=3).task(name="t", key="n")(counted)
    with working(app, concurrency=8):
        for number, partitions in enumerate((4, 1, 3)):
            task.enqueue_many([{"n": n} for n in range(100)])
            app.resize("q", partitions=partitions)
            eventually(lambda: counted.done > 100 * number + 20, "jobs run")  # noqa: B023
        eventually(lambda: counted.done == 300, "all have run")
    assert counted.most == 3


@pytest.mark.parametrize("value", [0, -1, "5", True])
def test_a_total_limit_that_cannot_be_is_refused_by_its_name(app: App, value: object) -> None:
    app.queue("q")
    with pytest.raises(InvalidInput, match="total_limit"):
        app.limit("q", total_limit=value)  # type: ignore[arg-type]
