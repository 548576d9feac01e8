"""Resizing with workers and producers at work: nobody notices but by the figures."""

from __future__ import annotations

import inspect
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.system import facts
from tests.system.conftest import MakeApp, Working

from penstock import App, Task
from penstock.routing.key_hash import partition_of


def eventually(fact: Callable[[], Any]) -> None:
    facts.eventually(fact, inspect.getsource(fact).strip())


class Log:
    """What ran of each key, and how many of it ran together at most."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.started: dict[str, list[int]] = defaultdict(list)
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.failing: set[int] = set()

    def __call__(self, key: str, n: int) -> None:
        with self.lock:
            self.started[key].append(n)
            self.running[key] += 1
            self.most[key] = max(self.most[key], self.running[key])
        with self.lock:
            self.running[key] -= 1
            if n in self.failing:
                raise ValueError(n)


@pytest.fixture
def log() -> Log:
    return Log()


def declare(app: App, log: Log, task: dict[str, Any] | None = None, **options: Any) -> Task[..., None]:
    def handle(key: str, n: int) -> None:
        log(key, n)

    queue = app.queue("q", **{"order": "key", "partitions": 2, **options})
    declared: Task[..., None] = queue.task(**{"key": "key", "backoff": 0, "name": "handle", **(task or {})})(handle)
    return declared


def key_that_moves(before: tuple[int, int], after: tuple[int, int], other_than: str = "") -> str:
    """A key of one partition by one map, of another by the next; each given as (number, partitions)."""
    names = (f"k{n}" for n in range(10_000))
    return next(
        name
        for name in names
        if name != other_than
        and partition_of(name.encode(), before[1]) == before[0]
        and partition_of(name.encode(), after[1]) == after[0]
    )


# Its producers use connections of their own, which lead to one database; on several see tests/shards/test_order.py.
@pytest.mark.parametrize("urls", [1], ids=["one database"], indirect=True)
def test_order_per_key_holds_while_a_queue_grows_and_shrinks_under_producers_with_old_maps(
    make_app: MakeApp, log: Log, working: Working
) -> None:
    workers = [make_app(), make_app()]
    producers = [make_app() for _ in range(4)]
    handles = [declare(each, log) for each in (*workers, *producers)][2:]
    producers[0].migrate()
    is_over = threading.Event()
    counts = [0] * len(producers)

    def produce(index: int) -> None:
        """Jobs of its own keys, each in another way, until the resizes are over."""
        app, handle = producers[index], handles[index]
        n = 0
        with psycopg.connect(app.url) as connection:
            while not is_over.is_set() or n < 200:
                keys = [f"{index}-{place}" for place in range(8)]
                handle.enqueue_many([{"key": key, "n": n} for key in keys])
                with connection.transaction():
                    for key in keys:
                        handle.options(connection=connection).enqueue(key=key, n=n + 1)
                for key in keys:
                    args = f'{{"key": "{key}", "n": {n + 2}}}'
                    connection.execute("select penstock.enqueue('q', 'handle', %s, key => %s)", [args, key])
                    connection.commit()
                    handle.enqueue(key=key, n=n + 3)
                n += 4
        counts[index] = n * 8

    threads = [threading.Thread(target=produce, args=(index,)) for index in range(len(producers))]
    with working(workers[0]), working(workers[1]):
        for thread in threads:
            thread.start()
        try:
            for partitions in (8, 4, 1, 6):
                done_before = workers[0].stats("q").total_completed
                producers[0].resize("q", partitions=partitions)
                eventually(lambda: workers[0].stats("q").total_completed > done_before + 100)  # noqa: B023
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        eventually(lambda: workers[0].stats("q").total_completed == sum(counts))
    assert {key: seen for key, seen in log.started.items() if seen != sorted(set(seen))} == {}
    assert sum(len(seen) for seen in log.started.values()) == sum(counts)
    assert set(log.most.values()) == {1}
    assert workers[0].stats("q").queue_length == 0


def test_what_waits_in_a_removed_partition_is_worked_off_and_the_resize_is_through(app: App, log: Log) -> None:
    handle = declare(app, log, partitions=3)
    handle.enqueue_many([{"key": f"k{n % 9}", "n": n} for n in range(90)])
    done = app.resize("q", partitions=1)
    assert sum(jobs for _, jobs in done.draining) == 90
    assert [name for name, _ in done.draining] == ["q", "q__p1", "q__p2"]
    handle.enqueue_many([{"key": f"k{n % 9}", "n": n} for n in range(90, 180)])
    assert app.work(until_idle=True).succeeded == 180
    assert all(seen == sorted(seen) for seen in log.started.values())
    assert app.resize("q", partitions=1).draining == []


def test_a_plain_queue_that_shrinks_loses_nothing(app: App, log: Log) -> None:
    handle = declare(app, log, order=None, partitions=3)
    handle.enqueue_many([{"key": f"k{n % 9}", "n": n} for n in range(90)])
    assert {name for name, _ in app.resize("q", partitions=1).draining} == {"q__p1", "q__p2"}
    assert app.work(until_idle=True).succeeded == 90
    assert app.resize("q", partitions=5).draining == []
    assert len(app.stats("q").partitions) == 5
    handle.enqueue_many([{"key": f"k{n}", "n": n} for n in range(100)])
    assert app.work(until_idle=True).succeeded == 100


def test_a_worker_takes_up_partitions_that_were_added_while_it_runs(app: App, log: Log, working: Working) -> None:
    handle = declare(app, log, order=None, partitions=1)
    app.migrate()
    with working(app):
        app.resize("q", partitions=4)
        handle.enqueue_many([{"key": f"k{n}", "n": n} for n in range(40)])
        eventually(lambda: app.stats("q").total_completed == 40)


@pytest.mark.parametrize("end", ["held", "halted"])
def test_a_key_that_waits_long_in_its_old_partition_holds_no_other_that_moved(
    app: App, log: Log, working: Working, end: str
) -> None:
    stuck = key_that_moves((0, 2), (2, 3))
    other = key_that_moves((0, 2), (2, 3), other_than=stuck)
    attempts = {"max_attempts": 1} if end == "halted" else {"backoff": 3600.0}
    handle = declare(app, log, attempts, on_dead="halt")
    log.failing = {0}
    head = handle.enqueue(key=stuck, n=0)
    handle.enqueue_many([{"key": stuck, "n": n} for n in range(1, 30)])
    with working(app):
        eventually(lambda: [found.job_id for found in app.blocked_keys("q")] == [head])
        app.resize("q", partitions=3)
        handle.enqueue_many([{"key": key, "n": 100 + n} for n in range(5) for key in (other, stuck)])
        eventually(lambda: len(log.started[other]) == 5)
        assert log.started[stuck] == [0]
        log.failing = set()
        app.retry(head)
        eventually(lambda: len(log.started[stuck]) == 36)
    assert log.started[stuck] == [0, *range(30), *range(100, 105)]
    assert log.started[other] == list(range(100, 105))
