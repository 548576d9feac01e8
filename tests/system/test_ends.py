"""How jobs end: returning, raising, retrying, snoozing, discarding, timing out; results, progress, hooks."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from tests.system import in_processes
from tests.system.conftest import Execute, Working
from tests.system.facts import eventually

import penstock
from penstock import App
from penstock.routing.key_hash import shard_of
from penstock.storage.connection.database import Connection
from penstock.storage.work.settle import split_lease
from penstock.worker import Event
from penstock.worker.backlog import Backlog
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.ended_jobs import end_taken_away
from penstock.worker.watchdog import Watchdog


def test_a_result_comes_back_and_a_failure_raises(app: App) -> None:
    queue = app.queue("q")

    @queue.task
    def add(a: int, b: int) -> int:
        return a + b

    @queue.task
    async def greet(name: str) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"hello": name}

    @queue.task(max_attempts=1)
    def fail() -> None:
        raise ValueError("on purpose")

    first, second, third = add.enqueue(1, 2), greet.enqueue(name="you"), fail.enqueue()
    app.work(until_idle=True)
    assert app.result(first) == 3
    assert app.result(second) == {"hello": "you"}
    with pytest.raises(penstock.JobFailed, match="on purpose"):
        app.result(third)
    with pytest.raises(penstock.ResultTimeout):
        app.result(add.options(delay=3600).enqueue(1, 2), timeout=0)


@pytest.mark.parametrize("max_attempts", [1, 2, 5])
def test_a_job_that_always_fails_is_tried_exactly_max_attempts_times(app: App, max_attempts: int) -> None:
    attempts: list[int] = []

    @app.queue("q").task(max_attempts=max_attempts, backoff=0)
    def fail(context: penstock.Context) -> None:
        attempts.append(context.attempt)
        raise ValueError("on purpose")

    job = fail.enqueue()
    app.work(until_idle=True)
    assert attempts == list(range(1, max_attempts + 1))
    assert app.job(job).state == "failed"
    assert [failure.attempt for failure in app.job(job).failures] == attempts


def test_retry_after_counts_and_respects_max_attempts(app: App) -> None:
    attempts: list[int] = []

    @app.queue("q").task(max_attempts=2)
    def again(context: penstock.Context) -> None:
        attempts.append(context.attempt)
        raise penstock.Retry(after=0)

    job = again.enqueue()
    app.work(until_idle=True)
    assert attempts == [1, 2]
    assert app.job(job).state == "failed"


def test_snoozing_counts_no_attempt_and_discarding_ends(app: App) -> None:
    queue = app.queue("q")
    attempts: list[int] = []

    @queue.task(max_attempts=1)
    def sleepy(context: penstock.Context) -> None:
        attempts.append(context.attempt)
        if len(attempts) < 5:
            raise penstock.Snooze(for_=0)

    @queue.task
    def drop() -> None:
        raise penstock.Discard("not worth it")

    snoozed, discarded = sleepy.enqueue(), drop.enqueue()
    app.work(until_idle=True)
    assert attempts == [1] * 5
    assert app.job(snoozed).state == "succeeded"
    assert app.job(discarded).state == "discarded"
    assert "not worth it" in str(app.job(discarded).error)


def test_a_dead_letter_runs_again_when_it_is_retried(app: App) -> None:
    is_broken = True

    @app.queue("q").task(max_attempts=1)
    def work(n: int) -> int:
        if is_broken:
            raise ValueError("on purpose")
        return n

    jobs = work.enqueue_many([{"n": n} for n in range(5)])
    app.work(until_idle=True)
    assert app.stats("q").dead == 5
    is_broken = False
    app.retry(jobs[0])
    assert app.retry(queue="q", state="failed", preview=True) == 4
    app.work(until_idle=True)
    assert app.result(jobs[0]) == 0
    assert app.retry(queue="q", state="failed") == 4
    app.work(until_idle=True)
    assert [app.result(job) for job in jobs] == list(range(5))
    assert app.stats("q").dead == 0


def test_retry_on_and_discard_on_decide_by_the_kind_of_error(app: App) -> None:
    runs: list[str] = []

    @app.queue("q").task(max_attempts=3, backoff=0, retry_on=OSError, discard_on=KeyError)
    def work(what: str) -> None:
        runs.append(what)
        raise {"os": OSError("x"), "key": KeyError("x"), "value": ValueError("x")}[what]

    jobs = {what: work.enqueue(what=what) for what in ("os", "key", "value")}
    app.work(until_idle=True)
    assert sorted(runs) == ["key", "os", "os", "os", "value"]
    assert {what: app.job(job).state for what, job in jobs.items()} == {
        "os": "failed",
        "key": "discarded",
        "value": "failed",
    }


def test_what_is_raised_in_a_task_group_is_kept_and_obeyed(app: App) -> None:
    queue = app.queue("q")
    raised: dict[str, BaseException] = {
        "broken": ValueError("card 4242 is refused"),
        "key": KeyError("x"),
        "later": penstock.Snooze(3600),
        "never": penstock.Discard("the shop was closed"),
        "again": penstock.Retry(3600),
        "os": OSError("x"),
    }

    async def charge(what: str) -> None:
        raise raised[what]

    @queue.task(max_attempts=2, backoff=3600, retry_on=OSError, discard_on=KeyError)
    async def order(what: str) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(charge(what))

    jobs = {what: order.enqueue(what=what) for what in raised}
    app.work(until_idle=True)
    found = {what: app.job(job) for what, job in jobs.items()}
    assert {what: (job.state.value, job.attempt) for what, job in found.items()} == {
        "broken": ("failed", 1),
        "key": ("discarded", 1),
        "later": ("scheduled", 0),
        "never": ("discarded", 1),
        "again": ("scheduled", 1),
        "os": ("scheduled", 1),
    }
    assert found["never"].error == "the shop was closed"
    error = str(found["broken"].error)
    assert error.startswith("ValueError: card 4242 is refused\n")
    assert "in charge" in error
    assert "in ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)" in error
    assert "in order" in error
    # What called the handler tells a user nothing.
    assert "event_loop.py" not in error


def test_a_worker_without_a_task_says_so(app: App, caplog: pytest.LogCaptureFixture) -> None:
    app.queue("q")
    app.work(until_idle=True)
    assert [said for said in caplog.messages if "this worker runs no job" in said and "for queue 'q'" in said]
    caplog.clear()

    @app.queue("r").task
    def work() -> None: ...

    app.work(until_idle=True)
    assert not [said for said in caplog.messages if "runs no job" in said]


def test_backoff_waits_with_jitter_that_differs(app: App, execute: Execute) -> None:
    @app.queue("q").task(backoff=lambda attempt: 100.0)
    def fail() -> None:
        raise ValueError("on purpose")

    fail.enqueue_many([{}] * 20)
    app.work(until_idle=True)
    dues = [due for (due,) in execute("select due_at from penstock.scheduled")]
    assert len(dues) == 20
    assert len(set(dues)) > 10


def test_a_handler_that_ran_too_long_is_ended_in_a_thread_and_on_the_loop(app: App) -> None:
    queue = app.queue("q")
    let_go = threading.Event()

    @queue.task(max_attempts=1, timeout=0.05)
    def slow(context: penstock.Context) -> str:
        eventually(lambda: context.is_cancelled, "the handler is told")
        let_go.wait(30)
        return "too late"

    @queue.task(max_attempts=1, timeout=0.05)
    async def slow_lane() -> None:
        await asyncio.sleep(600)

    jobs = [slow.enqueue(), slow_lane.enqueue()]

    def release() -> None:
        eventually(lambda: app.job(jobs[0]).state == "failed", "the job was ended before its handler")
        let_go.set()

    releasing = threading.Thread(target=release)
    releasing.start()
    app.work(until_idle=True)
    releasing.join()
    assert [app.job(job).state for job in jobs] == ["failed", "failed"]
    assert all("longer than its timeout" in str(app.job(job).error) for job in jobs)
    # And where the handler was then.
    assert "in slow_lane" in str(app.job(jobs[1]).error)


@pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "rolled back"])
def test_a_handler_that_ran_too_long_after_it_settled_is_told_and_its_job_ends_with_its_transaction(
    app: App, urls: list[str], is_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go, told, settled = threading.Event(), threading.Event(), threading.Event()
    due = Watchdog._due
    # However long connecting and settling take here, the timeout passes after them.
    monkeypatch.setattr(Watchdog, "_due", lambda watchdog, job: due(watchdog, job) if settled.is_set() else None)

    @app.queue("q").task(max_attempts=1, timeout=0.05)
    def slow(context: penstock.Context) -> None:
        with psycopg.connect(urls[shard_of(context.job_id) - 1]) as connection:
            context.settle(connection)
            settled.set()
            eventually(lambda: context.is_cancelled, "the handler is told")
            told.set()
            if not is_committed:
                connection.rollback()
        let_go.wait(60)
        raise ValueError("it is too late for this")

    job = slow.enqueue()
    # The handler stands still: the worker does not wait for it.
    app.work(until_idle=True)
    assert told.is_set()
    assert not let_go.is_set()
    found = app.job(job)
    assert found.state == ("succeeded" if is_committed else "failed")
    assert is_committed or "longer than its timeout" in str(found.error)
    let_go.set()


@pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "rolled back"])
def test_a_handler_whose_time_runs_out_while_it_asks_for_a_lease_of_its_own_does_not_keep_its_job(
    app: App, urls: list[str], is_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go, asked = threading.Event(), threading.Event()
    looks: list[int] = []
    due = Watchdog._due
    monkeypatch.setattr(Watchdog, "_due", lambda watchdog, job: due(watchdog, job) if asked.is_set() else None)

    def look(backlog: Backlog) -> list[ClaimedJob]:
        looks.append(len(backlog.taken_away))
        return end_taken_away(backlog)

    def split(connection: Connection, worker: int, lease: int, token: int, job_id: int) -> int | None:
        found = split_lease(connection, worker, lease, token, job_id)
        asked.set()
        # The database has given it; before it is known here the conductor wants to end the job, twice.
        eventually(lambda: looks.count(1) > 1, "the job was to be taken away")
        return found

    monkeypatch.setattr("penstock.worker.conductor.end_taken_away", look)
    monkeypatch.setattr("penstock.worker.context.split_lease", split)

    @app.queue("q").task(max_attempts=1, timeout=0.05)
    def slow(context: penstock.Context) -> None:
        with psycopg.connect(urls[shard_of(context.job_id) - 1]) as connection:
            context.settle(connection)
            if not is_committed:
                connection.rollback()
        let_go.wait(60)

    job = slow.enqueue()
    app.work(until_idle=True)
    assert not let_go.is_set()
    assert app.job(job).state == ("succeeded" if is_committed else "failed")
    let_go.set()


@pytest.mark.parametrize("value", [0.5, 1e300, 1e-300, float("nan"), pytest.param(10**400, id="huge")])
def test_progress_is_shown_and_no_value_of_it_stops_the_worker(app: App, working: Working, value: float) -> None:
    let_go = threading.Event()

    @app.queue("q").task
    def work(context: penstock.Context) -> None:
        with suppress(penstock.InvalidInput):
            context.progress(value, "half\x00 done\udc80")
        let_go.wait(30)

    job = work.enqueue()
    with working(app):
        eventually(lambda: app.job(job).state == "running", "it runs")
        for _ in range(2):
            renewed = app.workers()[0].renewed_at
            eventually(lambda: app.workers()[0].renewed_at > renewed, "the worker is still renewed")  # noqa: B023
        if value == 0.5:
            # On two shards each has a heart, and the one that was seen to beat may be the other's.
            eventually(lambda: app.job(job).progress is not None, "its progress is shown")
        let_go.set()
        eventually(lambda: app.job(job).state == "succeeded", "the job ended")
    assert app.job(job).attempt == 1


def test_hooks_are_told_what_became_of_jobs_and_cost_nothing(app: App) -> None:
    events: list[Event] = []

    @app.queue("q").task(max_attempts=2, backoff=0)
    def work(n: int) -> None:
        if n:
            raise ValueError("on purpose")

    def broken(event: Event) -> None:
        events.append(event)
        raise RuntimeError("a hook of the user's")

    for name in ("started", "succeeded", "retried", "failed"):
        app.on(name, broken)
    good, bad = work.enqueue_many([{"n": 0}, {"n": 1}])
    app.work(until_idle=True)
    told = sorted((event.job_id, event.name, event.attempt) for event in events)
    assert told == sorted(
        [
            (good, "started", 1),
            (good, "succeeded", 1),
            (bad, "started", 1),
            (bad, "retried", 1),
            (bad, "started", 2),
            (bad, "failed", 2),
        ]
    )


def test_g13_a_hook_that_hangs_keeps_no_job_waiting(app: App, working: Working) -> None:
    let_go = threading.Event()
    told: list[int | None] = []

    @app.queue("q").task()
    def work() -> None:
        pass

    def hang(event: Event) -> None:
        told.append(event.job_id)
        let_go.wait()

    app.on("succeeded", hang)
    with working(app):
        first = work.enqueue()
        eventually(lambda: told == [first], "the hook hangs")
        second = work.enqueue()
        eventually(lambda: app.job(second).state == "succeeded", "another job was done")
        assert told == [first]
        let_go.set()
    # Before `work` returns, hooks were told of everything.
    assert told == [first, second]


def test_jobs_in_processes_return_results_and_fail_alone(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    tasks = in_processes.declare(app)
    jobs = [tasks["square"].enqueue(n=n) for n in range(4)]
    dead = tasks["die"].enqueue()
    late = tasks["hang"].enqueue()
    progress = tasks["report"].enqueue()
    raised, given_up = tasks["fail"].enqueue(order=5), tasks["give_up"].enqueue()
    app.work(until_idle=True, concurrency=2)
    assert [app.result(job) for job in jobs] == [0, 1, 4, 9]
    assert "died with signal 9" in str(app.job(dead).error)
    assert "longer than its timeout" in str(app.job(late).error)
    assert app.job(progress).state == "succeeded"
    said = [line for line in str(app.job(raised).error).splitlines() if not line.startswith("  ")]
    assert said == ["Refused: order 5", "asked in a process", "caused by KeyError: 5"]
    assert app.job(given_up).error == "the shop was closed"
