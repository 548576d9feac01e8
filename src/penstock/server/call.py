"""A call: what a handler knows of the request it answers, and what it may use to do so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.datastructures import Headers
from starlette.types import Receive

from penstock.app import App
from penstock.server.body import stream_body
from penstock.server.caller import Caller
from penstock.server.threads import CallThreads

__all__ = ["Call", "EventStream", "Services"]

T = TypeVar("T")


@dataclass(slots=True)
class Services:
    """What all calls of one server share."""

    app: App
    producing: CallThreads = field(default_factory=lambda: CallThreads("produce", 16))
    looking: CallThreads = field(default_factory=lambda: CallThreads("look", 8))
    # Set when the server is about to stop: what waits for something to happen ends.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def close(self) -> None:
        """Wait for what is under way."""
        self.producing.close()
        self.looking.close()


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

    async def look(self, question: Callable[[], T]) -> T:
        """Ask something that blocks, in a thread."""
        return await self.services.looking.run(question)

    def body(self) -> AsyncIterator[bytes]:
        """The body, as it comes."""
        return stream_body(self.receive)


@dataclass(frozen=True, slots=True)
class EventStream:
    """An answer that goes on: server-sent events."""

    events: AsyncIterator[bytes]
