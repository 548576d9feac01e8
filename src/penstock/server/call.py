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
from penstock.server.job_ends import JobEnds
from penstock.server.threads import LOOKING, PRODUCING, WATCHING, CallThreads

__all__ = ["Call", "EventStream", "Services"]

T = TypeVar("T")


@dataclass(slots=True)
class Services:
    """What all calls of one server share."""

    app: App
    producing: CallThreads = field(default_factory=lambda: CallThreads(PRODUCING, 16))
    looking: CallThreads = field(default_factory=lambda: CallThreads(LOOKING, 8))
    watching: CallThreads = field(default_factory=lambda: CallThreads(WATCHING, 2))
    # Set when the server is about to stop: what waits for something to happen ends.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    # What is asked again and again is asked once for all who want it.
    job_ends: JobEnds = field(init=False)
    feed: Feed = field(init=False)

    def __post_init__(self) -> None:
        self.job_ends = JobEnds(self.app.ended_jobs, self.watching, self.stopping)
        self.feed = Feed(self.app, self.watching, self.stopping)

    async def close(self) -> None:
        """Wait for what is under way."""
        self.producing.close()
        self.looking.close()
        self.watching.close()


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
