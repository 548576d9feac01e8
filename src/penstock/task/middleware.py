"""Middleware: context managers of the application's around every run of a handler, the first declared outermost.

Each is made by a function of the context and the arguments, entered before the handler and left after it. What the
handler raises passes through all of them and stays what it is, also where one swallows it: a forgotten `raise` must not
make a failed job a succeeded one. What a middleware raises itself counts as if the handler had raised it.

A plain handler may have an async context manager around it. That is entered and left on an event loop, in one task,
while the handler runs in its own thread with the context variables that were set there.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from penstock.errors import InvalidInput
from penstock.task.own_loop import Submit
from penstock.task.redeclared import is_declared_again

__all__ = ["Manager", "Middleware", "name_of"]

Manager = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
_Function = Callable[[Any, Any], Any]


class Middleware:
    """The middleware of one app. Declared and used from any thread."""

    def __init__(self) -> None:
        self.functions: tuple[_Function, ...] = ()
        # Whether one of them wants the trace context of the load that a job came with.
        self.traces_loads = False

    def add(self, function: _Function) -> None:
        """Declare one more, within all others; the same again replaces it."""
        _check(function)
        for index, known in enumerate(self.functions):
            if is_declared_again(known, function):
                self.functions = (*self.functions[:index], function, *self.functions[index + 1 :])
                return
        self.functions = (*self.functions, function)

    def run(self, context: Any, args: Any, handler: Callable[[], Any], submit: Submit) -> Any:
        """Call a plain handler within all of them; `submit` is for those that are async."""
        return _run(self.functions, context, args, handler, submit)

    async def run_async(self, context: Any, args: Any, handler: Callable[[], Awaitable[Any]]) -> Any:
        """Await an async handler within all of them."""
        return await _run_async(self.functions, context, args, handler)


def _run(functions: tuple[_Function, ...], context: Any, args: Any, handler: Callable[[], Any], submit: Submit) -> Any:
    if not functions:
        return handler()
    manager = functions[0](context, args)
    rest = functools.partial(_run, functions[1:], context, args, handler, submit)
    kind = type(manager)
    if not _is_manager(kind):
        if not _is_async_manager(kind):
            raise _not_a_manager(functions[0], manager)
        return _run_beside(manager, rest, submit)
    kind.__enter__(manager)
    try:
        result = rest()
    except BaseException as error:
        kind.__exit__(manager, type(error), error, error.__traceback__)
        raise
    kind.__exit__(manager, None, None, None)
    return result


async def _run_async(
    functions: tuple[_Function, ...], context: Any, args: Any, handler: Callable[[], Awaitable[Any]]
) -> Any:
    if not functions:
        return await handler()
    manager = functions[0](context, args)
    rest = functools.partial(_run_async, functions[1:], context, args, handler)
    kind = type(manager)
    if not _is_async_manager(kind):
        if not _is_manager(kind):
            raise _not_a_manager(functions[0], manager)
        kind.__enter__(manager)
        try:
            result = await rest()
        except BaseException as error:
            kind.__exit__(manager, type(error), error, error.__traceback__)
            raise
        kind.__exit__(manager, None, None, None)
        return result
    await kind.__aenter__(manager)
    try:
        result = await rest()
    except BaseException as error:
        await kind.__aexit__(manager, type(error), error, error.__traceback__)
        raise
    await kind.__aexit__(manager, None, None, None)
    return result


def _run_beside(manager: Any, rest: Callable[[], Any], submit: Submit) -> Any:
    """Run what is within an async context manager in this thread, and the context manager on a loop, in one task."""
    entered: Future[tuple[contextvars.Context, asyncio.AbstractEventLoop, asyncio.Future[BaseException | None]]]
    entered = Future()

    async def hold() -> BaseException | None:
        """What was raised in entering or leaving; never raised here, as SystemExit would end the loop."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = loop.create_future()
        try:
            await type(manager).__aenter__(manager)
            entered.set_result((contextvars.copy_context(), loop, ended))
            error = await ended
            trace = None if error is None else error.__traceback__
            await type(manager).__aexit__(manager, None if error is None else type(error), error, trace)
        except BaseException as error:
            return error
        return None

    holding = submit(hold())
    holding.add_done_callback(lambda _: entered.cancel())
    try:
        context, loop, ended = entered.result()
    except CancelledError:
        problem = holding.result()
        raise (RuntimeError("the event loop ended") if problem is None else problem) from None
    error: BaseException | None = None
    result = None
    try:
        result = context.run(rest)
    except BaseException as raised:
        error = raised
    loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(error))
    problem = holding.result()
    if problem is None:
        problem = error
    if problem is not None:
        raise problem
    return result


def _is_manager(kind: type) -> bool:
    return hasattr(kind, "__enter__") and hasattr(kind, "__exit__")


def _is_async_manager(kind: type) -> bool:
    return hasattr(kind, "__aenter__") and hasattr(kind, "__aexit__")


def name_of(function: Any) -> str:
    """What a middleware is called in messages."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _not_a_manager(function: _Function, given: object) -> InvalidInput:
    if inspect.iscoroutine(given):
        given.close()
    return InvalidInput(
        "middleware",
        f"{name_of(function)} gave {type(given).__name__}, not a context manager; return one, or yield once and put "
        "@contextmanager or @asynccontextmanager below @app.middleware",
    )


def _check(function: object) -> None:
    if not callable(function):
        raise InvalidInput(
            "middleware",
            f"a function of context and arguments is needed, not {type(function).__name__}; write "
            "def tracing(context, args)",
        )
    name = name_of(function)
    if inspect.isgeneratorfunction(function):
        raise InvalidInput("middleware", f"{name} is a bare generator; put @contextmanager below @app.middleware")
    if inspect.isasyncgenfunction(function):
        raise InvalidInput("middleware", f"{name} is a bare generator; put @asynccontextmanager below @app.middleware")
    if inspect.iscoroutinefunction(function):
        raise InvalidInput(
            "middleware",
            f"{name} is a coroutine function, and a context manager is needed; write async def with one yield and put "
            "@asynccontextmanager below @app.middleware",
        )
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise InvalidInput(
            "middleware", f"{name} is called with the context and the arguments; write def {name}(context, args)"
        ) from None
    except ValueError:  # It does not show its parameters.
        return
