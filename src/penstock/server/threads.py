"""The threads of a server: calls of the app block, and the event loop may not.

What is written and what is looked at have threads of their own, so that a slow question holds up no producer. So many
may wait for one, and whoever comes then is told to come again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from penstock.server.problem import ProblemError

__all__ = ["ACTING", "ADMITTING", "DRAWING", "LOADING", "LOOKING", "PRODUCING", "WATCHING", "CallThreads", "hand_in"]

T = TypeVar("T")
# What their threads are called.
PRODUCING, LOADING, LOOKING, WATCHING = "penstock-produce", "penstock-load", "penstock-look", "penstock-watch"
ADMITTING, DRAWING, ACTING = "penstock-admit", "penstock-page", "penstock-act"
MOST_WAITING = 1_000


def hand_in(executor: ThreadPoolExecutor, act: Callable[[], T]) -> asyncio.Future[T]:
    """Have something done in a thread, unless the threads are closed: a request may come as the server ends."""
    try:
        return asyncio.get_running_loop().run_in_executor(executor, act)
    except RuntimeError:
        raise ProblemError("stopping", "the server is stopping; send it again") from None


class CallThreads:
    """A pool of so many; its work is handed in on the event loop. Of a caller that is named it takes `most_of_one`."""

    def __init__(self, name: str, count: int, most_waiting: int = MOST_WAITING, most_of_one: int | None = None) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._most = count + most_waiting
        self._most_of_one = most_of_one or self._most
        self._given: Counter[str | None] = Counter()

    async def run(self, call: Callable[[], T], caller: str | None = None) -> T:
        """Make a call in a thread. It goes on to its end, also where who asked has gone."""
        if self._given.total() >= self._most:
            raise ProblemError("busy", f"{self._most} calls like this are under way already; come again in a moment")
        if caller is not None and self._given[caller] >= self._most_of_one:
            raise ProblemError(
                "too-many-requests", f"{caller} has {self._most_of_one} calls like this under way; end one first"
            )
        future = hand_in(self._executor, partial(copy_context().run, call))
        self._given[caller] += 1
        future.add_done_callback(partial(self._note_done, caller))
        return await asyncio.shield(future)

    def close(self) -> None:
        """Wait for what runs."""
        self._executor.shutdown()

    def _note_done(self, caller: str | None, future: asyncio.Future[T]) -> None:
        self._given[caller] -= 1
        if not self._given[caller]:
            del self._given[caller]
        if not future.cancelled():
            # Read, so that nobody is told that it never was where who asked has gone.
            future.exception()
