"""A call: what a handler knows of the request it answers, and what it may use to do so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.datastructures import Headers
from starlette.types import Receive

from penstock.admin import left_out
from penstock.app import App
from penstock.server.body import stream_body
from penstock.server.caller import Caller
from penstock.server.feed import Feed
from penstock.server.guard import Guard
from penstock.server.job_ends import JobEnds
from penstock.server.remote.remote_workers import RemoteWorkers
from penstock.server.threads import ADMITTING, LOADING, LOOKING, PRODUCING, WATCHING, CallThreads

__all__ = ["Call", "EventStream", "Services"]

T = TypeVar("T")

# How many bodies of loads one server takes in at a time.
MOST_LOADS = 8


@dataclass(slots=True)
class Services:
    """What all calls of one server share."""

    app: App
    guard: Guard
    producing: CallThreads = field(default_factory=lambda: CallThreads(PRODUCING, 16))
    # Nobody who comes in waits behind what others look at.
    admitting: CallThreads = field(default_factory=lambda: CallThreads(ADMITTING, 2))
    looking: CallThreads = field(default_factory=lambda: CallThreads(LOOKING, 8))
    # Each has a thread as long as its body comes: none waits for another's, and no token has all of them.
    loading: CallThreads = field(
        default_factory=lambda: CallThreads(LOADING, MOST_LOADS, most_waiting=0, most_of_one=MOST_LOADS // 2)
    )
    watching: CallThreads = field(default_factory=lambda: CallThreads(WATCHING, 2))
    # Set when the server is about to stop: what waits for something to happen ends.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    # What is asked again and again is asked once for all who want it.
    job_ends: JobEnds = field(init=False)
    feed: Feed = field(init=False)
    # Made when the first of them calls: a server without any owns nothing.
    _remote_workers: asyncio.Future[RemoteWorkers] | None = None

    def __post_init__(self) -> None:
        self.job_ends = JobEnds(self.app.ended_jobs, self.watching, self.stopping)
        self.feed = Feed(self.app, self.watching, self.stopping)

    async def remote_workers(self) -> RemoteWorkers:
        """The workers far away for which this server acts, too."""
        if self._remote_workers is None:
            self._remote_workers = asyncio.ensure_future(self._begin_remote_work())
            self._remote_workers.add_done_callback(self._forget_failed)
        return await asyncio.shield(self._remote_workers)

    def begin_stop(self) -> None:
        """End what waits for something to happen, on the event loop."""
        self.stopping.set()
        if self._remote_workers is not None and self._remote_workers.done():
            self._remote_workers.result().begin_stop()

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._remote_workers is not None:
            await (await self._remote_workers).close()
        self.producing.close()
        self.loading.close()
        self.admitting.close()
        self.looking.close()
        self.watching.close()

    async def _begin_remote_work(self) -> RemoteWorkers:
        databases = await self.looking.run(lambda: self.app.databases)
        app = self.app
        return RemoteWorkers(
            databases, lease_seconds=app.lease_seconds, retention=app.retention, also=app.shared_duties
        )

    def _forget_failed(self, begun: asyncio.Future[RemoteWorkers]) -> None:
        if begun.cancelled() or begun.exception() is not None:
            self._remote_workers = None


@dataclass(slots=True)
class Call:
    """One request. Its body is read by whoever takes none as a value, in chunks."""

    services: Services
    caller: Caller
    headers: Headers
    receive: Receive

    @property
    def app(self) -> App:
        """The app that the server stands before."""
        return self.services.app

    def unavailable(self) -> list[str]:
        """The names of the shards that are known not to answer; after a question that goes to all of them."""
        return left_out(self.app.unchecked_databases)

    async def look(self, question: Callable[[], T]) -> T:
        """Ask something that blocks, in a thread."""
        return await self.services.looking.run(question)

    def body(self) -> AsyncIterator[bytes]:
        """The body, as it comes."""
        return stream_body(self.receive)


class EventStream:
    """An answer that goes on: server-sent events. `close` gives back what the stream took."""

    def __init__(self, events: AsyncIterator[bytes], close: Callable[[], None]) -> None:
        self.events = events
        self.close = close
