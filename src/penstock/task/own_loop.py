"""An event loop for what has to be awaited where no worker's loop is at hand: it lasts as long as what is awaited."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["Submit", "run_on_own_loop"]

T = TypeVar("T")

# Has a coroutine run on an event loop of another thread's.
Submit = Callable[[Coroutine[Any, Any, Any]], "Future[Any]"]


def run_on_own_loop(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine in a thread and on a loop of its own; it sees the context variables of whoever calls this."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(asyncio.run(coroutine))
        except BaseException as error:  # It goes to whoever waits for it.
            future.set_exception(error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name="penstock-own-loop", daemon=True).start()
    return future
