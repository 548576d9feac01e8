"""G13: a handler that does not come back costs itself. Its slot is taken by another, its job is taken from it, and a
worker that more of them than it has slots keep from going on ends with an error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.system import in_processes
from tests.system.conftest import Working
from tests.system.facts import eventually

import penstock
from penstock import App
from penstock.client.task import Queue
from penstock.routing.key_hash import shard_of
from penstock.worker.watchdog import Watchdog

KINDS: dict[str, dict[str, Any]] = {"plain": {}, "ordered": {"order": "key"}, "limited": {"limit": 4}}


@pytest.fixture
def let_go() -> Iterator[threading.Event]:
    """What hung handlers wait for: they end with the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of queue."""
    return str(request.param)


@pytest.fixture
def queue(app: App, kind: str) -> Queue:
    """A queue of each kind."""
    return app.queue("q", **KINDS[kind])


@pytest.fixture
def keyed(kind: str) -> str | None:
    """The key of tasks on such a queue."""
    return "name" if kind == "ordered" else None


def test_g13_a_handler_that_hangs_in_a_thread_is_replaced_at_its_timeout(
    app: App, queue: Queue, keyed: str | None, working: Working, let_go: threading.Event
) -> None:
    names: list[str] = []

    @queue.task(max_attempts=2, timeout=0.1, backoff=0, key=keyed)
    def hang(name: str) -> None:
        let_go.wait()

    @queue.task(key=keyed)
    def note(name: str) -> None:
        names.append(name)

    # Two slots, and two threads that never return: nothing else could run.
    hung = hang.enqueue(name="a")
    good = [note.enqueue(name=name) for name in ("a", "b", "c")]
    with working(app, concurrency=2) as worker:
        eventually(lambda: app.job(hung).state == "failed", "it was tried twice, and given up")
        # Now that both threads hang.
        good += [note.enqueue(name="a"), note.enqueue(name="d")]
        eventually(lambda: {app.job(job).state for job in good} == {"succeeded"}, "the others were done")
        assert worker.is_alive()
    assert sorted(names) == ["a", "a", "b", "c", "d"]
    failures = app.job(hung).failures
    assert [failure.attempt for failure in failures] == [1, 2]
    # Where it hung is said.
    assert all("longer than its timeout" in failure.error for failure in failures)
    assert all("let_go.wait()" in failure.error for failure in failures)


def test_g13_more_hung_handlers_than_slots_end_the_worker_and_another_goes_on(
    app: App, queue: Queue, keyed: str | None, let_go: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task(max_attempts=1, timeout=0.05, key=keyed)
    def hang(name: str) -> None:
        let_go.wait()

    @queue.task(key=keyed)
    def note(name: str) -> str:
        return name

    hung = [hang.enqueue(name=str(n)) for n in range(3)]
    with caplog.at_level(logging.WARNING, "penstock"), pytest.raises(penstock.WorkerStuck, match=r"q/hang.*start") as e:
        app.work(concurrency=2)
    assert "3 handlers" in str(e.value)
    # Where they are: the handler's own line, not that of what it called.
    assert re.search(rf"q/hang \(at {re.escape(__file__)}:\d+\)", str(e.value))
    assert "gives up its partitions and ends" in str(e.value)
    behind = [record.getMessage() for record in caplog.records if "left behind" in record.getMessage()]
    assert "the number of such is 3 (the worker ends when it is more than 2)" in behind[-1]
    assert any(str(e.value) == record.getMessage() for record in caplog.records)
    # It has left: nobody waits for its lease, and what it held is not held any more.
    assert not app.workers()
    good = note.enqueue(name="0")
    app.work(until_idle=True)
    assert [app.job(job).state for job in [*hung, good]] == ["failed"] * 3 + ["succeeded"]


def test_g13_a_hung_handler_that_returns_gives_its_place_back_and_changes_nothing(
    app: App, working: Working, let_go: threading.Event
) -> None:
    returned: list[int] = []

    @app.queue("q").task(max_attempts=1, timeout=0.05)
    def hang(n: int) -> str:
        let_go.wait()
        returned.append(n)
        return "too late"

    @app.queue("q").task
    def good() -> str:
        return threading.current_thread().name

    with working(app, concurrency=2) as worker:
        for number in range(3):
            jobs = hang.enqueue_many([{"n": number}] * 2)
            eventually(lambda: all(app.job(job).state == "failed" for job in jobs), "both timed out")  # noqa: B023
            let_go.set()
            eventually(lambda: returned.count(number) == 2, "both returned")  # noqa: B023
            # Both threads have ended: were they counted still, the next would be one too many.
            assert app.result(good.enqueue(), timeout=60)
            eventually(lambda: not left_behind(), "the threads left behind have ended")
            let_go.clear()
            assert worker.is_alive()
            assert [app.job(job).state for job in jobs] == ["failed", "failed"]


def left_behind() -> int:
    """Threads of workers beyond their slots."""
    return len([thread for thread in threading.enumerate() if thread.name.startswith("penstock-handler-")]) - 2


def test_g13_one_that_hangs_after_it_settled_in_its_own_transaction_counts_too(
    app: App, urls: list[str], let_go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: set[int] = set()
    due = Watchdog._due
    # However long connecting and settling take here, the timeout passes after them.
    monkeypatch.setattr(Watchdog, "_due", lambda watchdog, job: due(watchdog, job) if job.id in settled else None)

    @app.queue("q").task(max_attempts=1, timeout=0.05)
    def hang(context: penstock.Context) -> None:
        with psycopg.connect(urls[shard_of(context.job_id) - 1]) as connection:
            context.settle(connection)
        settled.add(context.job_id)
        let_go.wait()

    jobs = [hang.enqueue() for _ in range(3)]
    with pytest.raises(penstock.WorkerStuck):
        app.work(concurrency=2)
    assert [app.job(job).state for job in jobs] == ["succeeded"] * 3


def test_g13_a_blocked_event_loop_loses_its_jobs_at_their_timeout_and_is_named(
    app: App,
    queue: Queue,
    keyed: str | None,
    working: Working,
    let_go: threading.Event,
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun: list[str] = []

    @queue.task(max_attempts=1, timeout=0.1, key=keyed)
    async def block(name: str) -> None:
        let_go.wait()

    @queue.task(max_attempts=1, key=keyed)
    async def later(name: str) -> str:
        begun.append(name)
        return name

    @app.queue("threads").task
    def plain() -> str:
        return "done"

    blocking = block.enqueue(name="a")
    with caplog.at_level(logging.WARNING, "penstock"), working(app, concurrency=2, grace=600.0) as worker:
        eventually(lambda: app.job(blocking).state == "failed", "it was taken away")
        records = eventually(lambda: [r for r in caplog.records if "loop is blocked" in r.getMessage()], "so")
        told = [record.getMessage() for record in records]
        assert f"by job {records[0].job_id} " in told[0]  # type: ignore[attr-defined]
        assert f"by job {blocking} (q/block)" in told[0]
        assert "let_go.wait()" in told[0]
        waiting = later.enqueue(name="a")
        # Threads go on meanwhile, however often, and nothing is claimed for the loop.
        for _ in range(3):
            assert app.result(plain.enqueue(), timeout=60) == "done"
        assert app.job(waiting).state == "ready"
        assert not begun
        assert worker.is_alive()
        let_go.set()
        assert app.result(waiting, timeout=60) == "a"
    assert app.job(blocking).state == "failed"


def test_g13_a_loop_that_stays_blocked_ends_the_worker_and_its_jobs_are_tried_again(
    app: App, queue: Queue, keyed: str | None, let_go: threading.Event
) -> None:
    is_first = True

    @queue.task(max_attempts=2, backoff=0, key=keyed)
    async def block(name: str) -> str:
        nonlocal is_first
        if is_first:
            is_first = False
            let_go.wait()
        return name

    # Without a timeout: only the grace ends it.
    job = block.enqueue(name="a")
    with pytest.raises(penstock.WorkerStuck, match=rf"by job {job} \(q/block\)[\s\S]*let_go\.wait\(\)"):
        app.work(concurrency=2, grace=1.5)
    assert not app.workers()
    app.work(until_idle=True)
    assert app.result(job) == "a"
    assert "loop was blocked" in app.job(job).failures[0].error


def test_g13_an_async_handler_that_goes_on_after_it_was_interrupted_is_left_behind(
    app: App, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.worker.watchdog.CLEANING_SECONDS", 0.2)
    is_grace_over = threading.Event()

    @app.queue("q").task(max_attempts=1, timeout=0.05)
    async def stubborn() -> None:
        while not is_grace_over.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    @app.queue("q").task
    async def good() -> str:
        return "done"

    # As many as there are lanes.
    jobs = stubborn.enqueue_many([{}] * 2)
    with working(app, concurrency=2):
        eventually(lambda: all(app.job(job).state == "failed" for job in jobs), "they were taken away")
        assert app.result(good.enqueue(), timeout=60) == "done"
        is_grace_over.set()


def test_g13_a_process_that_dies_while_a_child_of_its_own_keeps_its_pipe_is_found_dead(
    app: App, working: Working, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    path = tmp_path / "child"
    job = in_processes.declare(app)["die_with_child"].enqueue(path=str(path))
    with working(app, concurrency=1):
        child = int(eventually(lambda: path.exists() and path.read_text(), "it has a child"))
        try:
            eventually(lambda: app.job(job).state == "failed", "its death is noticed")
        finally:
            os.kill(child, signal.SIGKILL)
    assert "died with exit code 3" in str(app.job(job).error)
