"""Middleware and async hooks in a worker: around plain, async and process handlers, on one database and on shards."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from tests.system import in_processes
from tests.system.conftest import MakeApp, Working
from tests.system.facts import eventually

from penstock import App, BatchContext, Context, Event, InvalidInput

SEEN: ContextVar[list[str]] = ContextVar("SEEN")


def declare_tasks(app: App) -> dict[str, Any]:
    """A plain and an async task, which do the same."""
    queue = app.queue("q")

    @queue.task(max_attempts=1)
    def plain(n: int) -> list[str]:
        if n > 1:
            raise ValueError("on purpose")
        return [*SEEN.get(), threading.current_thread().name]

    @queue.task(max_attempts=1, name="async")
    async def async_task(context: Context, n: int) -> list[str]:
        await asyncio.sleep(0)
        if n > 1:
            raise ValueError("on purpose")
        return [*SEEN.get(), threading.current_thread().name]

    return {"plain": plain, "async": async_task}


@pytest.fixture(params=["plain", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of handler."""
    return str(request.param)


class Empty(Exception):
    """An exception that is false, as a group of errors without any may be."""

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize("when", ["entering", "leaving"])
def test_what_it_raises_counts_also_where_it_is_false(app: App, kind: str, when: str) -> None:
    task = declare_tasks(app)[kind]

    @app.middleware
    @asynccontextmanager
    async def refuse(context: Context, args: Any) -> AsyncIterator[None]:
        SEEN.set([])
        if when == "entering":
            raise Empty("on purpose")
        yield
        raise Empty("on purpose")

    job = task.enqueue(n=1)
    app.work(until_idle=True)
    assert app.job(job).state == "failed"
    assert "Empty: on purpose" in (app.job(job).error or "")


def test_it_is_around_every_run_with_context_and_arguments_and_sees_the_exception(app: App, kind: str) -> None:
    task = declare_tasks(app)[kind]
    ends: dict[int, Any] = {}

    @app.middleware
    @contextmanager
    def outer(context: Context, args: Any) -> Iterator[None]:
        SEEN.set([f"{context.queue}/{context.task} {args}"])
        try:
            yield
        except BaseException as error:
            ends[context.job_id] = error
            raise
        ends[context.job_id] = context.attempt

    @app.middleware
    @asynccontextmanager
    async def inner(context: Context, args: Any) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        SEEN.set([*SEEN.get(), threading.current_thread().name])
        yield
        await asyncio.sleep(0)

    good, bad = task.enqueue(n=1), task.enqueue(n=2)
    app.work(until_idle=True)
    said, *threads = app.result(good)
    assert said == f"q/{kind} {{'n': 1}}"
    # The async one runs on the worker's loop; a plain handler stays in a thread of its own.
    assert threads[0] == "penstock-loop"
    assert threads[1].startswith("penstock-handler" if kind == "plain" else "penstock-loop")
    assert ends[good] == 1
    assert isinstance(ends[bad], ValueError)
    error = str(app.job(bad).error)
    # What is stored is what the user wrote, not what is around it.
    assert error.startswith("ValueError: on purpose")
    assert "task/middleware.py" not in error


def test_what_it_swallows_still_fails_the_job_and_what_it_raises_ends_it(app: App, kind: str) -> None:
    task = declare_tasks(app)[kind]

    @app.middleware
    @contextmanager
    def swallow(context: Context, args: Any) -> Iterator[None]:
        SEEN.set([])
        if args["n"] == 0:
            raise SystemExit("not today")
        with suppress(ValueError):
            yield

    swallowed, refused, good = (task.enqueue(n=n) for n in (2, 0, 1))
    app.work(until_idle=True)
    assert [app.job(job).state for job in (swallowed, refused, good)] == ["failed", "failed", "succeeded"]
    assert str(app.job(swallowed).error).startswith("ValueError: on purpose")
    assert str(app.job(refused).error).startswith("SystemExit: not today")


def test_one_that_hangs_is_ended_at_the_timeout_of_its_job(app: App, kind: str) -> None:
    task = declare_tasks(app)[kind]

    @app.middleware
    @asynccontextmanager
    async def hang(context: Context, args: Any) -> AsyncIterator[None]:
        if args.get("n") == 0:
            await asyncio.Event().wait()
        SEEN.set([])
        yield

    late = app.queue("q").task(max_attempts=1, timeout=0.2, name="late")(task.definition.function)
    job = late.enqueue(n=0)
    app.work(until_idle=True, concurrency=1, grace=60.0)
    assert "longer than its timeout" in str(app.job(job).error)


def test_in_a_process_it_is_around_the_handler_there(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    noted = in_processes.declare(app)["noted"]
    for each in (in_processes.note, in_processes.anote, in_processes.refuse):
        app.middleware(each)
    good, bad = noted.enqueue(n=1), noted.enqueue(n=2)
    app.work(until_idle=True, concurrency=1)
    name, task, args, outer, inner, handler = app.result(good)
    assert (name, task, args, inner) == ("note", "noted", {"n": 1}, "anote")
    assert outer == handler != os.getpid()
    assert (app.job(bad).state, app.job(bad).error) == ("discarded", "no such order: 2")


def test_a_process_cannot_have_what_it_would_not_find(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])

    @app.middleware
    @contextmanager
    def here(context: Context, args: Any) -> Iterator[None]:
        yield

    in_processes.declare(app)
    with pytest.raises(InvalidInput, match=r"here must be at the top of a module.*executor='process'") as refused:
        app.work(until_idle=True)
    assert refused.value.field == "middleware"


def test_hooks_may_be_async_and_are_awaited_on_the_workers_loop(
    app: App, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    task = declare_tasks(app)[kind]
    told: list[tuple[str, int | None, str]] = []

    @app.middleware
    @contextmanager
    def bind(context: Context, args: Any) -> Iterator[None]:
        SEEN.set([])
        yield

    async def note(event: Event) -> None:
        await asyncio.sleep(0)
        told.append((event.name, event.job_id, threading.current_thread().name))
        if event.name == "succeeded":
            raise SystemExit("a hook of the user's")

    for name in ("started", "succeeded", "failed"):
        app.on(name, note)
    jobs = [task.enqueue(n=n) for n in (1, 2, 1)]
    with caplog.at_level(logging.ERROR, "penstock"):
        app.work(until_idle=True)
    # Before `work` returns, hooks were told of everything.
    ends = zip(jobs, ("succeeded", "failed", "succeeded"), strict=True)
    assert sorted(told) == sorted(
        [("started", job, "penstock-loop") for job in jobs] + [(end, job, "penstock-loop") for job, end in ends]
    )
    assert [record.getMessage() for record in caplog.records].count("a hook for 'succeeded' raised") == 2


def test_a_handler_is_told_that_its_worker_stops(app: App, kind: str, working: Working) -> None:
    is_running = threading.Event()
    queue = app.queue("q")
    seen: list[bool] = []

    @app.middleware
    @contextmanager
    def look(context: Context, args: Any) -> Iterator[None]:
        seen.append(context.is_stopping)
        yield
        seen.append(context.is_stopping)

    @queue.task
    def plain(context: Context) -> str:
        is_running.set()
        eventually(lambda: context.is_stopping, "it is told")
        return "stopped"

    @queue.task(name="async")
    async def async_task(context: Context) -> str:
        is_running.set()
        while not context.is_stopping:  # noqa: ASYNC110  (a stop is told so)
            await asyncio.sleep(0.01)
        return "stopped"

    job = (plain if kind == "plain" else async_task).enqueue()
    with working(app):
        assert is_running.wait(60)
        app.stop()
        eventually(lambda: app.job(job).state == "succeeded", "it ended by itself")
    assert (app.result(job), seen) == ("stopped", [False, True])


def test_a_handler_in_a_process_is_told_too(
    app: App, working: Working, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    path = tmp_path / "pid"
    job = in_processes.declare(app)["stop_when_told"].enqueue(path=str(path))
    with working(app, grace=60.0):
        eventually(path.exists, "it runs")
        app.stop()
        eventually(lambda: app.job(job).state == "succeeded", "it ended by itself")
    assert app.result(job) == "stopped"


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_middleware_is_around_a_batch_once_and_knows_that_the_worker_stops(
    app: App, working: Working, kind: str
) -> None:
    is_running = threading.Event()
    queue = app.queue("q", partitions=1)
    seen: list[Any] = []

    @app.middleware
    @contextmanager
    def look(context: Any, args: Any) -> Iterator[None]:
        seen.append((context.task, context.job_id, context.attempt, list(args), context.is_stopping))
        yield
        seen.append(context.is_stopping)

    @queue.task(batch=10)
    def plain(context: BatchContext, items: list[dict[str, int]]) -> list[str]:
        is_running.set()
        eventually(lambda: context.is_stopping, "it is told")
        return ["stopped"] * len(items)

    @queue.task(name="async", batch=10)
    async def async_task(context: BatchContext, items: list[dict[str, int]]) -> list[str]:
        is_running.set()
        while not context.is_stopping:  # noqa: ASYNC110  (a stop is told so)
            await asyncio.sleep(0.01)
        return ["stopped"] * len(items)

    ids = (plain if kind == "plain" else async_task).enqueue_many([{"n": n} for n in range(3)])
    with working(app):
        assert is_running.wait(60)
        app.stop()
        eventually(lambda: app.job(ids[2]).state == "succeeded", "it ended by itself")
    assert [app.result(job) for job in ids] == ["stopped"] * 3
    assert seen == [(kind, ids[0], 1, [{"n": 0}, {"n": 1}, {"n": 2}], False), True]


def test_what_middleware_raises_fails_the_batch(make_app: MakeApp) -> None:
    app = make_app()

    @app.middleware
    @contextmanager
    def refuse(context: Any, args: Any) -> Iterator[None]:
        raise ValueError("no session")
        yield

    @app.queue("q", partitions=1).task(batch=10, max_attempts=1)
    def work(items: list[dict[str, int]]) -> None: ...

    ids = work.enqueue_many([{"n": n} for n in range(3)])
    app.work(until_idle=True)
    for job in map(app.job, ids):
        assert "ValueError: no session" in (job.error or "")
    with app.testing() as tests:
        ids = work.enqueue_many([{"n": n} for n in range(2)])
        tests.drain()
        assert ["no session" in (tests.job(job).error or "") for job in ids] == [True, True]


def test_in_a_process_a_batch_has_middleware_and_is_told_of_a_stop(app: App, working: Working, tmp_path: Path) -> None:
    app.middleware(in_processes.note)
    work = app.queue("q", partitions=1).task(batch=10, executor="process")(in_processes.stop_many_when_told)
    path = tmp_path / "running"
    ids = work.enqueue_many([{"path": str(path)} for _ in range(2)])
    with working(app):
        eventually(path.exists, "the handler runs")
        app.stop()
        eventually(lambda: app.job(ids[1]).state == "succeeded", "it ended by itself")
    for job in ids:
        name, task, args = app.result(job)
        assert (name, task, args) == ("note", "stop_many_when_told", [{"path": str(path)}] * 2)
