"""Middleware: what is around a handler, in which order, and what becomes of what is raised."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import pytest

from penstock import App, Context, InvalidInput, Retry
from penstock.task.middleware import Middleware
from penstock.task.own_loop import run_on_own_loop

TENANT: ContextVar[str] = ContextVar("TENANT", default="nobody")
KINDS = ("plain", "async")


def run(middleware: Middleware, kind: str, handler: Callable[[], Any] = lambda: "done") -> Any:
    """Run a handler, or an async one that does the same."""
    if kind == "plain":
        return middleware.run("the context", {"n": 1}, handler, run_on_own_loop)

    async def async_handler() -> Any:
        await asyncio.sleep(0)
        return handler()

    return asyncio.run(middleware.run_async("the context", {"n": 1}, async_handler))


def made(*functions: Any) -> Middleware:
    middleware = Middleware()
    for function in functions:
        middleware.add(function)
    return middleware


def noting(said: list[str], name: str) -> Any:
    @contextmanager
    def note(context: Any, args: Any) -> Iterator[None]:
        said.append(f"{name} in")
        try:
            yield
        except BaseException as error:
            said.append(f"{name} {type(error).__name__}")
            raise
        said.append(f"{name} out")

    return note


def noting_async(said: list[str], name: str) -> Any:
    @asynccontextmanager
    async def anote(context: Any, args: Any) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        with noting(said, name)(context, args):
            yield
        await asyncio.sleep(0)

    return anote


def fail() -> None:
    raise ValueError("on purpose")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [noting, noting_async])
def test_the_first_declared_is_the_outermost(kind: str, make: Any) -> None:
    said: list[str] = []
    middleware = made(make(said, "one"), noting(said, "two"), make(said, "three"))
    assert run(middleware, kind) == "done"
    assert said == ["one in", "two in", "three in", "three out", "two out", "one out"]
    said.clear()
    with pytest.raises(ValueError, match="on purpose"):
        run(middleware, kind, fail)
    assert said[3:] == ["three ValueError", "two ValueError", "one ValueError"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_sets_is_seen_within_and_reset_after(kind: str) -> None:
    @asynccontextmanager
    async def bind(context: Any, args: Any) -> AsyncIterator[None]:
        # Reset in the context it was set in, or it raises: all of it is one task.
        token = TENANT.set(TENANT.get() + "+async")
        task = asyncio.current_task()
        yield
        assert asyncio.current_task() is task
        TENANT.reset(token)

    @contextmanager
    def outer(context: Any, args: Any) -> Iterator[None]:
        assert (context, args) == ("the context", {"n": 1})
        token = TENANT.set("acme")
        yield
        TENANT.reset(token)

    threads = [threading.current_thread()]

    def handler() -> str:
        threads.append(threading.current_thread())
        return TENANT.get()

    assert run(made(outer, bind), kind, handler) == "acme+async"
    # A plain handler stays in its thread.
    assert threads[1] is threads[0]
    assert TENANT.get() == "nobody"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_async", [False, True])
def test_what_it_swallows_is_raised_all_the_same(kind: str, is_async: bool) -> None:
    said: list[str] = []

    @contextmanager
    def swallow(context: Any, args: Any) -> Iterator[None]:
        try:
            yield
        except ValueError:
            said.append("swallowed")

    @asynccontextmanager
    async def aswallow(context: Any, args: Any) -> AsyncIterator[None]:
        with swallow(context, args):
            yield

    middleware = made(noting(said, "outer"), aswallow if is_async else swallow)
    with pytest.raises(ValueError, match="on purpose"):
        run(middleware, kind, fail)
    assert said == ["outer in", "swallowed", "outer ValueError"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("when", ["before", "after", "instead"])
def test_what_it_raises_counts_and_passes_through_the_outer_ones(kind: str, is_async: bool, when: str) -> None:
    said: list[str] = []

    @contextmanager
    def broken(context: Any, args: Any) -> Iterator[None]:
        if when == "before":
            raise SystemExit("before")
        try:
            yield
        except ValueError as error:
            raise Retry(after=5) from error
        raise SystemExit("after")

    @asynccontextmanager
    async def abroken(context: Any, args: Any) -> AsyncIterator[None]:
        with broken(context, args):
            yield

    kind_of_error = Retry if when == "instead" else SystemExit
    middleware = made(noting(said, "outer"), abroken if is_async else broken)
    with pytest.raises(kind_of_error) as raised:
        run(middleware, kind, fail if when == "instead" else lambda: None)
    assert said == ["outer in", f"outer {kind_of_error.__name__}"]
    assert isinstance(raised.value.__cause__, ValueError) == (when == "instead")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_both_is_entered_as_the_handler_is(kind: str) -> None:
    said: list[str] = []

    class Both:
        def __enter__(self) -> None:
            said.append("plain")

        def __exit__(self, *_: object) -> None: ...

        async def __aenter__(self) -> None:
            said.append("async")

        async def __aexit__(self, *_: object) -> None: ...

    assert run(made(lambda context, args: Both()), kind) == "done"
    assert said == [kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [None, "text", asyncio.sleep])
def test_what_is_no_context_manager_is_told_so(kind: str, given: Any) -> None:
    def tracing(context: Any, args: Any) -> Any:
        return given(0) if callable(given) else given

    with pytest.raises(InvalidInput, match=r"tracing gave \w+, not a context manager; return one, or yield once and"):
        run(made(tracing), kind)


def a_generator(context: Any, args: Any) -> Iterator[None]:
    yield


async def an_async_generator(context: Any, args: Any) -> AsyncIterator[None]:
    yield


async def a_coroutine_function(context: Any, args: Any) -> None: ...


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "a function of context and arguments is needed, not NoneType"),
        ("tracing", "a function of context and arguments is needed, not str"),
        (a_generator, "a_generator is a bare generator; put @contextmanager below"),
        (an_async_generator, "an_async_generator is a bare generator; put @asynccontextmanager below"),
        (a_coroutine_function, "a_coroutine_function is a coroutine function, and a context manager is needed"),
        (contextmanager(lambda context: iter(())), "called with the context and the arguments"),
        (nullcontext(), "a function of context and arguments is needed, not nullcontext"),
    ],
)
def test_what_cannot_be_middleware_is_refused_where_it_is_declared(given: Any, said: str) -> None:
    app = App()
    with pytest.raises(InvalidInput, match=said) as refused:
        app.middleware(given)
    assert refused.value.field == "middleware"


def test_declared_again_it_takes_its_own_place() -> None:
    said: list[str] = []

    def again(text: str) -> Any:
        names: dict[str, Any] = {"__name__": "__main__", "contextmanager": contextmanager, "said": said}
        cell = "@contextmanager\ndef first(context, args):\n    said.append({!r})\n    yield\n"
        exec(compile(cell.format(text), "<cell>", "exec"), names)
        return names["first"]

    middleware = made(again("old"), noting(said, "two"), again("new"))
    run(middleware, "plain")
    assert said == ["new", "two in", "two out"]
    # What a factory makes several of are several.
    assert len(made(noting(said, "a"), noting(said, "b")).functions) == 2
    assert len(made(functools.partial(noting(said, "a")), noting(said, "b")).functions) == 2


def test_in_a_test_of_the_users_it_is_around_handlers_too() -> None:
    app = App()
    queue = app.queue("q")
    seen: list[Any] = []

    @app.middleware
    @contextmanager
    def bind(context: Context, args: Any) -> Iterator[None]:
        token = TENANT.set(f"{context.task}({args['n']})")
        try:
            yield
        except BaseException as error:
            seen.append((context.job_id, context.attempt, context.is_stopping, type(error)))
            raise
        finally:
            TENANT.reset(token)

    # The function is still what it was.
    assert isinstance(bind(None, {"n": 1}), AbstractContextManager)  # type: ignore[arg-type]

    @queue.task
    def plain(n: int) -> str:
        return TENANT.get()

    @queue.task
    async def async_one(context: Context, n: int) -> str:
        return f"{TENANT.get()} {context.task}"

    @queue.task(max_attempts=1)
    def bad(n: int) -> None:
        fail()

    with app.testing(inline=True) as testing:
        assert testing.result(plain.enqueue(n=1)) == "plain(1)"
        assert testing.result(async_one.enqueue(n=2)) == "async_one(2) async_one"
        assert testing.job(bad.enqueue(n=3)).state == "failed"
    assert seen == [(3, 1, False, ValueError)]


def test_an_async_one_is_around_plain_handlers_of_a_test_of_the_users() -> None:
    app = App()

    @app.middleware
    @asynccontextmanager
    async def bind(context: Context, args: Any) -> AsyncIterator[None]:
        TENANT.set("acme")
        yield

    @app.queue("q").task
    def plain() -> str:
        return TENANT.get()

    with app.testing(inline=True) as testing:
        assert testing.result(plain.enqueue()) == "acme"
    assert TENANT.get() == "nobody"
