"""Calls that meet: what is called in the block waits in the line of its shard, and goes on together when that ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from typing import Any, TypeVar

from tests.system.facts import eventually

from penstock import App
from penstock.client.waiting_line import MOST_UNDER_WAY, Caller, Entry, WaitingLine

__all__ = ["Meeting"]

T = TypeVar("T")
MOST_CALLERS = 50


class CountingLine(deque[Entry]):
    """Knows how many have come."""

    come = 0

    def append(self, entry: Entry) -> None:
        super().append(entry)
        self.come += 1


class Meeting:
    """As many callers as may be under way are, and do nothing: whoever calls meanwhile waits."""

    def __init__(self, app: App, shard: int = 1) -> None:
        app.databases  # noqa: B018  (opens them)
        producer = app.sender._open_producer()
        self.line: WaitingLine = producer._merger._open_line(shard)
        self.line._waiting = self._waiting = CountingLine()
        self.line.stuck_seconds = inf
        self._threads = ThreadPoolExecutor(MOST_CALLERS)
        self._idlers = [Caller() for _ in range(MOST_UNDER_WAY)]

    def __enter__(self) -> Meeting:
        for idler in self._idlers:
            idler.present.acquire()
            assert self.line.go_alone(idler)
        return self

    def __exit__(self, *_: object) -> None:
        for idler in self._idlers:
            self.line._under_way.pop(idler)
            idler.present.release()
        self.line._wake_next()
        self._threads.shutdown(wait=False)

    def call(self, function: Callable[..., T], *args: Any, **named: Any) -> Future[T]:
        """Call in a thread of its own; it waits in the line."""
        before = self._waiting.come
        called = self._threads.submit(function, *args, **named)
        eventually(lambda: self._waiting.come > before or called.done(), "the call is in line")
        return called
