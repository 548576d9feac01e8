"""Runs: jobs of a key that are taken in one go. They start in order, one after the other, whatever becomes of one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from typing import Any

import psycopg
import pytest
from tests.system.conftest import Execute, MakeApp, Working
from tests.system.facts import eventually

from penstock import App, Context, Discard, Retry, Snooze
from penstock.engine import owner
from penstock.storage.work import workers
from penstock.worker import conductor
from penstock.worker.claimed_run import ClaimedRun

JOBS = 60


class Log:
    """What started and ended of each key, in order, and how many of it ran together at most."""

    def __init__(self) -> None:
        self.started: dict[str, list[int]] = defaultdict(list)
        self.attempts: dict[str, list[int]] = defaultdict(list)
        self.most = 0
        self._running: dict[str, int] = defaultdict(int)
        self._lock = threading.Lock()

    def begin(self, key: str, n: int, attempt: int = 1) -> None:
        with self._lock:
            self.started[key].append(n)
            self.attempts[key].append(attempt)
            self._running[key] += 1
            self.most = max(self.most, self._running[key])

    def end(self, key: str) -> None:
        with self._lock:
            self._running[key] -= 1

    def firsts(self, key: str) -> list[int]:
        return list(dict.fromkeys(self.started[key]))


def declare(app: App, log: Log, act: Any = None, **options: Any) -> Any:
    queue = app.queue("q", order="key", **{"run": 20, **options})

    @queue.task(name="t", key="key", backoff=0, max_attempts=3)
    def handle(context: Context, key: str, n: int) -> None:
        log.begin(key, n, context.attempt)
        try:
            if act is not None:
                act(context, key, n)
        finally:
            log.end(key)

    return handle


def enqueue(task: Any, keys: str = "ab", jobs: int = JOBS) -> None:
    task.enqueue_many([{"key": key, "n": n} for n in range(jobs) for key in keys])


def wait_for_all(app: App, jobs: int) -> None:
    eventually(lambda: app.stats("q").total_completed == jobs, "all have run")


def test_g5_a_run_keeps_the_order_of_its_key_and_runs_one_at_a_time(app: App, working: Working) -> None:
    log = Log()
    task = declare(app, log)
    enqueue(task, "abcd", 200)
    with working(app, concurrency=3):
        wait_for_all(app, 800)
    assert {key: log.started[key] for key in "abcd"} == {key: list(range(200)) for key in "abcd"}
    assert log.most == 1


def test_several_jobs_of_a_key_are_leased_together(app: App, working: Working, execute: Execute) -> None:
    log, go, is_there = Log(), threading.Event(), threading.Event()

    def act(_context: Context, _key: str, n: int) -> None:
        if n == 40:
            is_there.set()
            assert go.wait(60)

    task = declare(app, log, act)
    jobs = task.enqueue_many([{"key": "a", "n": n} for n in range(JOBS)])
    with working(app, concurrency=2):
        assert is_there.wait(60)
        eventually(
            lambda: app.explain(jobs[40]).reason.startswith("running on "), "it runs, and those before have ended"
        )
        assert app.explain(jobs[41]).reason.startswith(f"in a run behind {jobs[40]}, taken by ")
        leased = execute("select is_ahead, low, high from penstock.lease")
        go.set()
        wait_for_all(app, JOBS)
    # What waits behind job 40 is leased with it, as ahead: it has not started.
    assert sum(high - low for is_ahead, low, high in leased if is_ahead) > 5
    assert log.started["a"] == list(range(JOBS))


def test_a_failure_ends_the_run_and_what_follows_goes_back_unattempted(app: App, working: Working) -> None:
    log = Log()

    def act(context: Context, _key: str, n: int) -> None:
        if n % 13 == 5 and context.attempt == 1:
            raise ValueError(n)

    task = declare(app, log, act)
    enqueue(task)
    with working(app, concurrency=3):
        wait_for_all(app, 2 * JOBS)
    for key in "ab":
        assert log.firsts(key) == list(range(JOBS))
        # The one that failed runs again before anything that follows it, and nothing else runs twice.
        assert log.started[key] == [m for n in range(JOBS) for m in ([n, n] if n % 13 == 5 else [n])]
        assert {n for n, attempt in zip(log.started[key], log.attempts[key], strict=True) if attempt > 1} == {
            n for n in range(JOBS) if n % 13 == 5
        }


@pytest.mark.parametrize("on_retry", ["hold", "pass"])
def test_a_snooze_ends_the_run(app: App, working: Working, on_retry: str) -> None:
    log = Log()

    def act(_context: Context, key: str, n: int) -> None:
        if n == 7 and log.started[key].count(7) == 1:
            raise Snooze(0.2)

    task = declare(app, log, act, on_retry=on_retry)
    enqueue(task, "a")
    with working(app, concurrency=3):
        wait_for_all(app, JOBS)
    assert log.firsts("a") == list(range(JOBS))
    if on_retry == "hold":
        assert log.started["a"] == [*range(8), *range(7, JOBS)]
    assert log.most == 1


def test_a_dead_letter_goes_on_or_halts_the_key_as_the_queue_says(make_app: MakeApp, working: Working) -> None:
    for name in ("continue", "halt"):
        log, app = Log(), make_app()
        queue = app.queue(name, order="key", run=20, on_dead=name)

        @queue.task(name="t", key="key", max_attempts=1)
        def handle(key: str, n: int) -> None:
            log.begin(key, n)  # noqa: B023
            log.end(key)  # noqa: B023
            if n == 7:
                raise ValueError(n)

        handle.enqueue_many([{"key": "a", "n": n} for n in range(JOBS)])
        with working(app, concurrency=3):
            eventually(lambda: app.stats(name).dead == 1, "one is dead")  # noqa: B023
            if name == "halt":
                eventually(lambda: app.stats(name).active_count == 0, "what follows is back")  # noqa: B023
                assert log.started["a"] == list(range(8))
                app.release(name, "a")
            eventually(lambda: app.stats(name).total_completed == JOBS - 1, "the others have run")  # noqa: B023
        assert log.started["a"] == list(range(JOBS))


def test_cancelled_expired_and_discarded_jobs_do_not_end_the_run(app: App, working: Working) -> None:
    log, go = Log(), threading.Event()

    def act(_context: Context, _key: str, n: int) -> None:
        if n == 0:
            assert go.wait(60)
        if n == 9:
            raise Discard("enough")

    task = declare(app, log, act)
    jobs = task.enqueue_many([{"key": "a", "n": n} for n in range(JOBS)])
    with working(app, concurrency=2):
        eventually(lambda: log.started["a"], "the first runs")
        app.cancel(jobs[4])
        go.set()
        eventually(lambda: app.stats("q").total_completed == JOBS - 2, "the others have run")
    assert log.started["a"] == [n for n in range(JOBS) if n != 4]


def test_a_timeout_ends_the_run_and_its_key_goes_on_elsewhere_in_order(app: App, working: Working) -> None:
    log, is_over = Log(), threading.Event()
    queue = app.queue("q", order="key", run=20)

    @queue.task(name="t", key="key", backoff=0, max_attempts=2, timeout=0.3)
    def handle(context: Context, key: str, n: int) -> None:
        log.begin(key, n, context.attempt)
        log.end(key)
        if n == 7 and context.attempt == 1:
            is_over.wait(60)

    enqueue(handle, "a")
    with working(app, concurrency=3):
        wait_for_all(app, JOBS)
        is_over.set()
    assert log.started["a"] == [*range(8), *range(7, JOBS)]


def test_pause_stop_and_hand_over_leave_what_has_not_started(make_app: MakeApp, working: Working) -> None:
    log, app, other = Log(), make_app(), make_app()

    def act(_context: Context, _key: str, _n: int) -> None:
        time.sleep(0.01)

    task = declare(app, log, act, run=1000)
    declare(other, log, act, run=1000)
    enqueue(task, "abc", 100)
    with working(app, concurrency=2):
        eventually(lambda: len(log.started["a"]) > 5, "it runs")
        app.pause("q")
        eventually(lambda: app.stats("q").active_count == 0, "nothing is leased")
        app.resume("q")
        eventually(lambda: len(log.started["a"]) > 20, "it runs again")
        with working(other, concurrency=2):
            eventually(lambda: len(log.started["a"]) > 40, "both have a part")
    with working(other, concurrency=2):
        wait_for_all(other, 300)
    assert {key: log.started[key] for key in "abc"} == {key: list(range(100)) for key in "abc"}
    assert log.most == 1


def holds_jobs(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("select from penstock.ready limit 1").fetchone() is not None


def test_context_settle_waits_for_what_ended_before_and_ends_the_run(
    make_app: MakeApp, working: Working, urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, app = Log(), make_app()
    # At the time of each settle: which of its key are not settled.
    unsettled: list[int] = []
    waits: list[bool] = []
    wait = ClaimedRun.wait_until_settled

    def waited(run: ClaimedRun, seconds: float) -> bool:
        waits.append(run.is_over)
        return wait(run, seconds)

    monkeypatch.setattr(ClaimedRun, "wait_until_settled", waited)
    open_before = (
        "select count(*) from penstock.lease as l"
        " cross join lateral unnest(penstock.positions(l.low, l.high, l.members)) as m where l.range * 1024 + m < %s"
    )

    def act(context: Context, _key: str, n: int) -> None:
        if n % 10 == 7:
            with psycopg.connect(place[0]) as connection:
                context.settle(connection)
                unsettled.append(connection.execute(open_before, [context.job_id]).fetchone()[0])  # type: ignore[index]

    task = declare(app, log, act, partitions=1)
    enqueue(task, "a")
    place = [url for url in urls if holds_jobs(url)]
    with working(app, concurrency=2):
        wait_for_all(app, JOBS)
    assert log.started["a"] == list(range(JOBS))
    assert unsettled == [0] * 6
    # Mostly that is so by itself: it was waited for, when nothing of the run could start any more.
    assert len(waits) >= 6
    assert all(waits)


async def on_the_loop(key: str, n: int) -> int:
    await asyncio.sleep(0)
    return time.monotonic_ns()


def in_process(key: str, n: int) -> int:
    return time.monotonic_ns()


@pytest.mark.parametrize("handler", [on_the_loop, in_process])
def test_runs_in_the_event_loop_and_in_processes(app: App, working: Working, handler: Any) -> None:
    options: dict[str, Any] = {"executor": "process"} if handler is in_process else {}
    task = app.queue("q", order="key", run=20).task(name="t", key="key", **options)(handler)
    jobs = task.enqueue_many([{"key": "a", "n": n} for n in range(40)])
    with working(app, concurrency=2):
        wait_for_all(app, 40)
    # By the machine's own clock: when a job started is told by when it was settled, which is not as exact.
    times = [app.job(job).result for job in jobs]
    assert times == sorted(times)


def test_a_run_leaves_its_slot_to_other_keys(app: App, working: Working, monkeypatch: pytest.MonkeyPatch) -> None:
    # What has waited for long goes back too, and is not what is meant here.
    monkeypatch.setattr(conductor, "LONGEST_WAIT_SECONDS", 3600.0)
    log, is_over = Log(), threading.Event()

    def act(_context: Context, key: str, _n: int) -> None:
        if key == "a" and not is_over.is_set():
            time.sleep(0.02)

    task = declare(app, log, act, run=1000)
    enqueue(task, "a", 1000)
    with working(app, concurrency=1):
        eventually(lambda: len(log.started["a"]) > 5, "it runs")
        enqueue(task, "b", 3)
        eventually(lambda: len(log.started["b"]) == 3, "the other key has run")
        assert len(log.started["a"]) < 1000
        is_over.set()
        wait_for_all(app, 1003)
    assert log.started["a"] == list(range(1000))
    assert log.most == 1


def test_nothing_of_a_run_that_was_cut_passes_the_job_that_still_runs(app: App, working: Working) -> None:
    log, go = Log(), threading.Event()

    def act(_context: Context, key: str, n: int) -> None:
        if (key, n) == ("a", 5):
            assert go.wait(100)

    task = declare(app, log, act, partitions=1)
    enqueue(task, "a")
    with working(app, concurrency=2):
        eventually(lambda: 5 in log.started["a"], "it runs")
        app.pause("q")
        eventually(lambda: len(app.jobs(queue="q", key="a", state="ready", limit=1000)) == JOBS - 6, "it is given back")
        app.resume("q")
        enqueue(task, "b", 40)
        eventually(lambda: len(log.started["b"]) == 40, "the others have the slot that is free")
        assert log.started["a"] == list(range(6))
        go.set()
        wait_for_all(app, JOBS + 40)
    assert log.started["a"] == list(range(JOBS))
    assert log.most == 1


def test_run_is_changed_while_the_queue_runs(app: App, working: Working, execute: Execute) -> None:
    log = Log()
    task = declare(app, log, lambda *_: time.sleep(0.002), run=1)
    enqueue(task, "a", 300)
    in_runs = "select count(*) from penstock.lease where is_ahead"
    with working(app, concurrency=2):
        eventually(lambda: len(log.started["a"]) > 10, "it runs")
        assert sum(n for (n,) in execute(in_runs)) == 0
        app.limit("q", run=50)
        eventually(lambda: sum(n for (n,) in execute(in_runs)) > 0, "jobs are taken in runs")
        app.limit("q", run=1)
        wait_for_all(app, 300)
    assert log.started["a"] == list(range(300))
    assert app.stats("q").rules.run == 1


def test_retry_asked_by_the_handler_ends_the_run(app: App, working: Working) -> None:
    log = Log()

    def act(_context: Context, key: str, n: int) -> None:
        if n == 3 and log.started[key].count(3) == 1:
            raise Retry(after=0.1)

    task = declare(app, log, act)
    enqueue(task, "a")
    with working(app, concurrency=2):
        wait_for_all(app, JOBS)
    assert log.started["a"] == [*range(4), *range(3, JOBS)]


SLEEPERS = "select count(*) from penstock.sleeper"
# What a worker asks of each database it asks of each by itself.
of_one_database = pytest.mark.parametrize("urls", [1], ids=["one database"], indirect=True)


@of_one_database
def test_a_worker_looks_for_a_job_of_another_key_as_soon_as_it_hears_of_it(
    app: App, working: Working, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only who is told that there is news looks.
    for seconds in ("LOOK_SECONDS", "NEWS_SECONDS", "OTHERS_SECONDS", "SWEEP_SECONDS"):
        monkeypatch.setattr(owner, seconds, 3600.0)
    log, go = Log(), threading.Event()

    def act(_context: Context, key: str, _n: int) -> None:
        if key == "h":
            assert go.wait(60)

    task = declare(app, log, act)
    with working(app, concurrency=4):
        eventually(lambda: execute(SLEEPERS) == [(1,)], "it sleeps")
        for key in "hab":
            enqueue(task, key, 1)
            eventually(lambda: log.started[key] == [0], "it has started")  # noqa: B023
        go.set()
        wait_for_all(app, 3)


@of_one_database
@pytest.mark.parametrize(("concurrency", "last"), [(1, "wake_up"), (2, "fall_asleep")])
def test_beside_a_run_a_worker_hears_what_comes_while_a_slot_is_free_and_no_longer(
    app: App, working: Working, execute: Execute, monkeypatch: pytest.MonkeyPatch, concurrency: int, last: str
) -> None:
    log, acts, seen = Log(), list[str](), list[list[str]]()

    def noting(name: str) -> Any:
        act = getattr(workers, name)

        def note(*arguments: Any) -> None:
            acts.append(name)
            act(*arguments)

        return note

    def wait_for_those_before(_context: Context, _key: str, n: int) -> None:
        # So that the run goes on, and gets more at its tail, from its second half to its end.
        eventually(lambda: app.stats("q").total_completed == n, "those before are settled")
        if n in (JOBS // 4, JOBS - 1):
            seen.append([*acts])

    for name in ("fall_asleep", "wake_up"):
        monkeypatch.setattr(workers, name, noting(name))
    monkeypatch.setattr(conductor, "AWAKE_SECONDS", 0.0)
    task = declare(app, log, wait_for_those_before)
    with working(app, concurrency=concurrency):
        eventually(lambda: execute(SLEEPERS) == [(1,)], "it sleeps")
        enqueue(task, "a")
        wait_for_all(app, JOBS)
    assert seen[0] == seen[1]
    assert seen[1][-1] == last
