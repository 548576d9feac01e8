"""The threads of a server: calls of the app block, and the event loop may not.

What is written and what is looked at have threads of their own, so that a slow question holds up no producer. So many
may wait for one, and whoever comes then is told to come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from penstock.server.problem import ProblemError

__all__ = ["ACTING", "ADMITTING", "DRAWING", "LOADING", "LOOKING", "PRODUCING", "WATCHING", "CallThreads"]

T = TypeVar("T")
# What their threads are called.
PRODUCING, LOADING, LOOKING, WATCHING = "penstock-produce", "penstock-load", "penstock-look", "penstock-watch"
ADMITTING, DRAWING, ACTING = "penstock-admit", "penstock-page", "penstock-act"
MOST_WAITING = 1_000


class CallThreads:
    """A pool of so many; its work is handed in on the event loop."""

    def __init__(self, name: str, count: int, most_waiting: int = MOST_WAITING) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._most = count + most_waiting
        self._given = 0

    async def run(self, call: Callable[[], T]) -> T:
        """Make a call in a thread. It goes on to its end, also where who asked has gone."""
        if self._given >= self._most:
            raise ProblemError("busy", f"{self._most} calls like this are under way already; come again in a moment")
        self._given += 1
        future = asyncio.get_running_loop().run_in_executor(self._executor, copy_context().run, call)
        future.add_done_callback(self._note_done)
        return await asyncio.shield(future)

    def close(self) -> None:
        """Wait for what runs."""
        self._executor.shutdown()

    def _note_done(self, future: asyncio.Future[T]) -> None:
        self._given -= 1
        if not future.cancelled():
            # Read, so that nobody is told that it never was where who asked has gone.
            future.exception()
