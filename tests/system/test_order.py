"""Queues with rules about keys, with real workers: order, retries that hold or pass, halts, shares, hand-over."""

from __future__ import annotations

import inspect
import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from tests.system import facts
from tests.system.conftest import MakeApp, Working

import penstock
from penstock import App, Task
from penstock.admin.key_reasons import key_reason
from penstock.routing.key_hash import partition_of
from penstock.storage.inspect.key_reasons import why_not_started


def eventually(fact: Callable[[], Any]) -> None:
    facts.eventually(fact, inspect.getsource(fact).strip())


class Log:
    """Handlers note here what they run, and how many of a key run together."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.started: dict[str, list[int]] = defaultdict(list)
        self.all: list[tuple[str, int]] = []
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.failing: dict[int, list[BaseException]] = {}
        self.gates: dict[int, threading.Event] = {}

    def __call__(self, key: str, n: int) -> None:
        with self.lock:
            self.started[key].append(n)
            self.all.append((key, n))
            self.running[key] += 1
            self.most[key] = max(self.most[key], self.running[key])
            errors = self.failing.get(n)
            error = errors.pop(0) if errors else None
        try:
            if (gate := self.gates.get(n)) is not None:
                gate.wait(60)
            if error is not None:
                raise error
        finally:
            with self.lock:
                self.running[key] -= 1


@pytest.fixture
def log() -> Log:
    return Log()


def declare(app: App, log: Log, task: dict[str, Any] | None = None, **options: Any) -> Task[..., None]:
    def handle(key: str, n: int) -> None:
        log(key, n)

    queue = app.queue("q", **{"order": "key", **options})
    declared: Task[..., None] = queue.task(**{"key": "key", "backoff": 0, **(task or {})})(handle)
    return declared


def rows(count: int, keys: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"key": f"k{n % keys}", "n": n} for n in range(first, first + count)]


def test_jobs_of_a_key_run_one_at_a_time_in_enqueue_order(app: App, log: Log) -> None:
    handle = declare(app, log, partitions=4)
    for first in range(0, 600, 100):
        handle.enqueue_many(rows(100, 7, first))
    for n in range(600, 620):
        handle.enqueue(key=f"k{n % 7}", n=n)
    worked = app.work(until_idle=True)
    assert worked.succeeded == 620
    assert all(seen == sorted(seen) for seen in log.started.values())
    assert set(log.most.values()) == {1}


def test_keys_run_side_by_side(app: App, log: Log, working: Working) -> None:
    handle = declare(app, log)
    log.gates = {n: threading.Event() for n in range(3)}
    handle.enqueue_many(rows(6, 3))
    with working(app, concurrency=8):
        eventually(lambda: len(log.all) == 3)
        assert sorted(log.all) == [("k0", 0), ("k1", 1), ("k2", 2)]
        log.gates[1].set()
        eventually(lambda: ("k1", 4) in log.all)
        for gate in log.gates.values():
            gate.set()
        eventually(lambda: len(log.all) == 6)


def test_jobs_without_a_key_run_side_by_side_too(app: App, log: Log) -> None:
    def handle(n: int) -> None:
        log("", n)

    task = app.queue("q", order="key").task(handle)
    log.gates = {0: threading.Event()}

    def open_when_others_ran() -> None:
        eventually(lambda: len(log.all) == 3)
        log.gates[0].set()

    opener = threading.Thread(target=open_when_others_ran)
    opener.start()
    task.enqueue_many([{"n": n} for n in range(3)])
    assert app.work(until_idle=True).succeeded == 3
    opener.join()


def test_a_failed_head_holds_its_key_until_its_retry_and_no_other(app: App, log: Log) -> None:
    handle = declare(app, log, task={"backoff": 0.2})
    log.failing = {0: [ValueError("once"), ValueError("twice")]}
    handle.enqueue_many(rows(6, 2))
    while app.stats("q").total_completed < 6:
        app.work(until_idle=True)
    assert log.started["k0"] == [0, 0, 0, 2, 4]
    assert log.started["k1"] == [1, 3, 5]
    assert log.all.index(("k1", 5)) < log.all.index(("k0", 2))


def test_a_snoozed_head_holds_its_key_too(app: App, log: Log) -> None:
    handle = declare(app, log)
    log.failing = {0: [penstock.Snooze(for_=0.2)]}
    handle.enqueue_many(rows(3, 1))
    while app.stats("q").total_completed < 3:
        app.work(until_idle=True)
    assert log.started["k0"] == [0, 0, 1, 2]


def test_with_pass_a_failed_head_goes_behind_the_others_of_its_key(app: App, log: Log) -> None:
    handle = declare(app, log, on_retry="pass")
    log.failing = {0: [ValueError("once")]}
    handle.enqueue_many(rows(4, 1))
    while app.stats("q").total_completed < 4:
        app.work(until_idle=True)
    assert log.started["k0"] == [0, 1, 2, 3, 0]
    assert log.most["k0"] == 1


def test_when_attempts_run_out_the_key_goes_on(app: App, log: Log) -> None:
    handle = declare(app, log, task={"max_attempts": 2})
    log.failing = {0: [ValueError("once"), ValueError("twice")]}
    handle.enqueue_many(rows(2, 1))
    worked = app.work(until_idle=True)
    assert (worked.succeeded, worked.failed) == (1, 1)
    assert log.started["k0"] == [0, 0, 1]


def test_with_halt_the_key_waits_for_a_person_and_others_do_not(app: App, log: Log) -> None:
    handle = declare(app, log, task={"max_attempts": 1}, on_dead="halt")
    log.failing = {0: [ValueError("once")]}
    ids = handle.enqueue_many(rows(4, 2))
    app.work(until_idle=True)
    assert log.all in (
        [("k0", 0), ("k1", 1), ("k1", 3)],
        [("k1", 1), ("k0", 0), ("k1", 3)],
        [("k1", 1), ("k1", 3), ("k0", 0)],
    )
    (blocked,) = app.blocked_keys("q")
    assert (blocked.key, blocked.waiting) == ("k0", 1)
    assert "halted" in app.explain(ids[2]).reason
    app.release("q", "k0")
    app.work(until_idle=True)
    assert log.started["k0"] == [0, 2]
    with pytest.raises(penstock.NotFound):
        app.release("q", "k0")


def test_a_retried_dead_letter_of_a_halted_key_runs_first(app: App, log: Log) -> None:
    handle = declare(app, log, task={"max_attempts": 1}, on_dead="halt")
    log.failing = {0: [ValueError("once")]}
    ids = handle.enqueue_many(rows(3, 1))
    app.work(until_idle=True)
    app.retry(ids[0])
    app.work(until_idle=True)
    assert log.started["k0"] == [0, 0, 1, 2]


def test_per_key_lets_so_many_of_a_key_run_started_in_order(app: App, log: Log, working: Working) -> None:
    handle = declare(app, log, per_key=2)
    log.gates = {n: threading.Event() for n in range(6)}
    handle.enqueue_many(rows(6, 1))
    with working(app, concurrency=8):
        eventually(lambda: log.started["k0"] == [0, 1])
        log.gates[1].set()
        eventually(lambda: log.started["k0"] == [0, 1, 2])
        for gate in log.gates.values():
            gate.set()
        eventually(lambda: len(log.all) == 6)
    assert log.started["k0"] == [0, 1, 2, 3, 4, 5]
    assert log.most["k0"] == 2


def test_a_cancelled_job_that_waits_leaves_the_others_in_order(app: App, log: Log) -> None:
    handle = declare(app, log)
    ids = handle.enqueue_many(rows(5, 1))
    app.cancel(ids[2])
    app.work(until_idle=True)
    assert log.started["k0"] == [0, 1, 3, 4]


def test_a_head_that_is_cancelled_while_it_waits_for_its_retry_lets_its_key_go_on(
    app: App, log: Log, working: Working
) -> None:
    handle = declare(app, log, task={"backoff": 600})
    log.failing = {0: [ValueError("once")]}
    ids = handle.enqueue_many(rows(2, 1))
    with working(app):
        eventually(lambda: app.job(ids[0]).state == "scheduled")
        assert f"behind key head {ids[0]} (retries at" in app.explain(ids[1]).reason
        (blocked,) = app.blocked_keys("q")
        assert (blocked.key, blocked.waiting) == ("k0", 1)
        app.cancel(ids[0])
        eventually(lambda: app.job(ids[1]).state == "succeeded")


def test_explain_names_the_running_head_of_the_key(app: App, log: Log, working: Working) -> None:
    handle = declare(app, log)
    log.gates = {0: threading.Event()}
    ids = handle.enqueue_many(rows(3, 1))
    assert "no worker" in app.explain(ids[1]).reason
    with working(app):
        eventually(lambda: log.all == [("k0", 0)])
        assert app.explain(ids[1]).reason.startswith(f"behind key head {ids[0]} (running on worker ")
        # Another holds it, who is gone: nobody has found that out yet.
        with app.databases.of_job(ids[1]).connect() as connection, connection.transaction(force_rollback=True):
            connection.execute("update penstock.lease set worker_id = 1")
            head = why_not_started(connection, ids[1])
            assert head is not None
            said, _ = key_reason(ids[1], "handle", head) or ("", {})
            assert f"behind key head {ids[0]} (was running on worker " in said
            assert "which is gone: it runs again when a worker's upkeep finds it" in said
        assert app.stats("q").partitions[0].owner is not None
        log.gates[0].set()
        eventually(lambda: len(log.all) == 3)


def test_tasks_of_one_call_keep_their_order_within_a_key(app: App, log: Log) -> None:
    queue = app.queue("q", order="key")

    @queue.task(key="key")
    def one(key: str, n: int) -> None:
        log(key, n)

    @queue.task(key="key")
    def two(key: str, n: int) -> None:
        log(key, n)

    app.enqueue_many([(one, two)[n % 2].job(key="k0", n=n) for n in range(20)])
    app.work(until_idle=True)
    assert log.started["k0"] == list(range(20))


def test_a_task_no_worker_knows_makes_its_key_wait_and_no_other(make_app: MakeApp, log: Log) -> None:
    knowing, app = make_app(), make_app()
    queue = knowing.queue("q", order="key")

    @queue.task(key="key")
    def unknown(key: str, n: int) -> None:
        log(key, n)

    handle = declare(app, log)
    knowing.migrate()
    app.migrate()
    (first,) = unknown.enqueue_many([{"key": "k0", "n": -1}])
    ids = handle.enqueue_many(rows(4, 2))
    app.work(until_idle=True)
    assert log.all == [("k1", 1), ("k1", 3)]
    assert app.job(ids[0]).state == "ready"

    def known(key: str, n: int) -> None:
        log(key, n)

    knowing.queue("q", order="key").task(name="handle", key="key")(known)
    knowing.work(until_idle=True)
    assert log.started["k0"] == [-1, 0, 2]
    assert knowing.job(first).state == "succeeded"


def test_a_tenant_with_little_work_is_not_kept_waiting_by_one_with_much(app: App, log: Log) -> None:
    def handle(n: int) -> None:
        log("", n)

    task = app.queue("q", partitions=1, fair_by="tenant").task(handle)
    task.options(tenant="much").enqueue_many([{"n": n} for n in range(500)])
    task.options(tenant="little").enqueue_many([{"n": 1000 + n} for n in range(10)])
    app.work(until_idle=True, concurrency=1)
    places = [place for place, (_, n) in enumerate(log.all) if n >= 1000]
    assert len(log.all) == 510
    assert places[-1] < 60


def test_a_rate_per_key_holds_and_is_waited_for(app: App, log: Log) -> None:
    handle = declare(app, log, order=None, per_key_rate="20/s")
    handle.enqueue_many(rows(60, 2))
    assert app.work(until_idle=True).succeeded == 60
    assert log.started["k0"] == list(range(0, 60, 2))


def test_a_worker_that_stops_hands_its_partitions_over(make_app: MakeApp, log: Log, working: Working) -> None:
    first, second = make_app(), make_app()
    handle = declare(first, log, partitions=4)
    declare(second, log, partitions=4)
    first.migrate()

    def owners() -> list[str | None]:
        return [part.owner for part in first.stats("q").partitions]

    with working(first):
        eventually(lambda: None not in owners())
        (alone,) = set(owners())
        with working(second):
            eventually(lambda: sorted(Counter(owners()).values()) == [2, 2] and None not in owners())
            handle.enqueue_many(rows(200, 10))
            eventually(lambda: first.stats("q").total_completed == 200)
        eventually(lambda: set(owners()) == {alone})
    assert set(owners()) == {None}
    assert all(seen == sorted(seen) for seen in log.started.values())


def test_the_next_owner_waits_for_what_the_last_one_still_runs(make_app: MakeApp, log: Log, working: Working) -> None:
    first, second = make_app(), make_app()
    handle = declare(first, log)
    declare(second, log)
    log.gates = {0: threading.Event()}
    handle.enqueue_many(rows(4, 2))
    stopped: list[threading.Thread] = []
    with working(first):
        eventually(lambda: ("k0", 0) in log.all)
        with working(second):
            stopped.append(threading.Thread(target=first.stop))
            stopped[0].start()
            eventually(lambda: {part.owner for part in first.stats("q").partitions} != {None} and ("k1", 3) in log.all)
            ids = handle.enqueue_many([{"key": "k2", "n": 9}])
            eventually(lambda: second.job(ids[0]).state == "succeeded")
            assert log.started["k0"] == [0]
            log.gates[0].set()
            eventually(lambda: log.started["k0"] == [0, 2])
    stopped[0].join()


def test_a_paused_queue_starts_nothing_and_goes_on_in_order(app: App, log: Log, working: Working) -> None:
    handle = declare(app, log)
    app.migrate()
    app.pause("q")
    handle.enqueue_many(rows(4, 2))
    app.work(until_idle=True)
    assert log.all == []
    with working(app):
        app.resume("q")
        eventually(lambda: len(log.all) == 4)
    assert all(seen == sorted(seen) for seen in log.started.values())


def test_max_wait_and_max_length_hold_on_ordered_queues(app: App, log: Log) -> None:
    handle = declare(app, log, max_wait=0.05, max_length=3)
    ids = handle.enqueue_many(rows(3, 1))
    with pytest.raises(penstock.QueueFull):
        handle.enqueue(key="k0", n=3)
    eventually(lambda: (app.work(until_idle=True), app.job(ids[2]).state == "expired" or log.all)[1])


def test_a_limit_on_an_ordered_queue_counts_all_its_keys(app: App, log: Log, working: Working) -> None:
    handle = declare(app, log, limit=2, partitions=1)
    log.gates = {n: threading.Event() for n in range(5)}
    ids = handle.enqueue_many(rows(5, 5))
    with working(app, concurrency=8):
        eventually(lambda: len(log.all) == 2)
        assert "limit 2 of 2" in app.explain(ids[4]).reason
        app.limit("q", limit=4)
        eventually(lambda: len(log.all) == 4)
        for gate in log.gates.values():
            gate.set()
        eventually(lambda: len(log.all) == 5)
    assert [n for _, n in log.all] == [0, 1, 2, 3, 4]


def test_until_idle_does_not_wait_for_a_retry_that_holds_a_key_which_has_moved(app: App, log: Log) -> None:
    handle = declare(app, log, task={"backoff": 600})
    moved = next(f"k{n}" for n in range(100) if partition_of(f"k{n}".encode(), 3))
    log.failing = {0: [ValueError("once")]}
    handle.enqueue(key=moved, n=0)
    app.work(until_idle=True)
    assert not app.resize("q", partitions=3).is_through
    handle.enqueue(key=moved, n=1)
    app.work(until_idle=True)
    assert log.started[moved] == [0]


def test_a_rate_per_key_alone_blocks_no_key_when_a_job_fails(app: App, log: Log) -> None:
    handle = declare(app, log, order=None, per_key_rate="1000/s", task={"backoff": 600})
    log.failing = {0: [ValueError("once")]}
    handle.enqueue_many(rows(3, 1))
    app.work(until_idle=True)
    assert log.started["k0"] == [0, 1, 2]
    assert app.blocked_keys("q") == []


def test_a_head_of_an_unknown_task_that_is_cancelled_lets_its_key_go_on(
    make_app: MakeApp, log: Log, working: Working
) -> None:
    renamed, app = make_app(), make_app()

    @renamed.queue("q", order="key").task(key="key")
    def gone(key: str, n: int) -> None:
        log(key, n)

    handle = declare(app, log)
    head = gone.enqueue(key="k0", n=-1)
    behind = handle.enqueue(key="k0", n=0)
    with working(app):
        eventually(lambda: "does not know task 'gone'" in app.explain(behind).reason)
        app.cancel(head)
        eventually(lambda: app.job(behind).state == "succeeded")
    assert log.started["k0"] == [0]


def test_who_knows_more_of_a_queues_tasks_owns_its_partitions(make_app: MakeApp, log: Log, working: Working) -> None:
    old, new = make_app(), make_app()
    declare(old, log)
    handle = declare(new, log)

    @new.queue("q", order="key").task(key="key")
    def newer(key: str, n: int) -> None:
        log(key, n)

    with working(old):
        eventually(lambda: old.stats("q").partitions[0].owner)
        with working(new):
            new.enqueue_many([newer.job(key="k0", n=0), handle.job(key="k0", n=1)])
            eventually(lambda: new.stats("q").total_completed == 2)
        handle.enqueue(key="k0", n=2)
        eventually(lambda: old.stats("q").total_completed == 3)
    assert log.started["k0"] == [0, 1, 2]


def test_a_child_behind_many_jobs_of_another_key_in_its_call_keeps_its_own_keys_order(app: App, log: Log) -> None:
    handle = declare(app, log)
    parent = handle.enqueue(key="p", n=-1)
    app.work(until_idle=True)
    many = [handle.job(key="k0", n=n) for n in range(64)]
    first = handle.options(after=[parent]).job(key="k1", n=100)
    app.enqueue_many([*many, first])
    handle.enqueue(key="k1", n=101)
    app.work(until_idle=True)
    assert log.started["k1"] == [100, 101]
    assert log.most["k1"] == 1


def test_several_of_a_key_start_in_order_though_handlers_are_fast(app: App, log: Log) -> None:
    handle = declare(app, log, per_key=16)
    handle.enqueue_many(rows(1500, 2))
    app.work(until_idle=True, concurrency=2)
    # Two that start together note themselves in any order; nothing may be further from its place.
    for seen in log.started.values():
        assert all(abs(n // 2 - place) <= 1 for place, n in enumerate(seen))


def test_long_arguments_are_not_kept_by_an_owner_and_arrive_whole(app: App, log: Log) -> None:
    lengths: list[int] = []

    @app.queue("q", order="key").task(key="key")
    def measure(key: str, text: str) -> None:
        lengths.append(len(text))

    measure.enqueue_many([{"key": f"k{n}", "text": "x" * n} for n in (1, 100_000, 5_000)])
    app.work(until_idle=True)
    assert sorted(lengths) == [1, 5_000, 100_000]


def test_a_worker_that_shares_no_task_with_another_of_an_ordered_queue_says_so_when_it_starts(
    make_app: MakeApp, working: Working, caplog: pytest.LogCaptureFixture
) -> None:
    apps = [make_app(), make_app(), make_app()]
    for app, names in zip(apps, ["a", "b", "ab"], strict=True):
        queue = app.queue("divided", order="key")
        plain = app.queue("plain")
        for name in names:
            queue.task(name=name, key="k")(lambda k: k)
            plain.task(name=name)(lambda: None)

    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if "does not know" in record.getMessage()]

    with caplog.at_level(logging.WARNING, logger="penstock"), working(apps[0]):
        eventually(lambda: len(apps[0].workers()) == 1)
        assert said() == []
        with working(apps[2]):  # It knows all that the other knows.
            eventually(lambda: len(apps[0].workers()) == 2)
        assert said() == []
        with working(apps[1]):
            eventually(lambda: len(apps[0].workers()) == 2)
            eventually(said)
    line, *again = said()  # once for each shard
    assert set(again) <= {line}
    assert "queue 'divided'" in line
    assert "does not know task 'a'" in line
