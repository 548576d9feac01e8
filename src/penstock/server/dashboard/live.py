"""Open pages are drawn again as things change: each once for all who look at it, however many those are.

Every round draws each page that is open, in a thread, with what was read for one used for the others; who has it open
is sent what stands in it, if that has changed. Then so long a pause follows that drawing takes a small share of the
time, whatever pages are open: with many the rounds are rarer, and the databases are asked no more.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.clock import system
from penstock.errors import PartitionUnavailable, PenstockError
from penstock.model.token import Role
from penstock.server.dashboard.view import Given
from penstock.server.feed import HEARTBEAT, HEARTBEAT_SECONDS, MOST_STREAMS
from penstock.server.inner_api import Reads
from penstock.server.job_ends import wait_at_most
from penstock.server.problem import ProblemError

__all__ = ["LivePages", "OpenPage", "PageStream", "Scope"]

log = logging.getLogger("penstock")

ROUND_SECONDS = 2.0
# Of the time so much at most is spent on drawing.
MOST_SHARE = 0.1
# What takes longer waited for a database, which is no work: with it back, nobody looks at an old page for minutes.
LONGEST_DRAWING_SECONDS = 3.0
# Beyond that many different ones a page stays as it was opened.
MOST_PAGES = 200
_LINE_END = re.compile("\r\n|\r|\n")


class Scope(NamedTuple):
    """What somebody may see: who may see the same is shown the same."""

    role: Role
    queues: frozenset[str] | None
    tenant: str | None
    hides_args: bool


@dataclass(frozen=True, slots=True)
class OpenPage:
    """A page as it is looked at."""

    scope: Scope
    root: str
    path: str
    query: tuple[tuple[str, str], ...]

    @property
    def given(self) -> Given:
        """The query, to be read."""
        return Given(self.query)


# Draws what stands in a page; in a thread.
Draw = Callable[[OpenPage, Reads], str]


class PageStream:
    """What one browser is sent of its open page: the newest only."""

    def __init__(self, page: OpenPage) -> None:
        self.page = page
        self._newest: str | None = None
        self._sent: str | None = None
        self._is_over = False
        self._news = asyncio.Event()

    def put(self, drawn: str) -> None:
        """Show that, unless it is what is shown."""
        if drawn not in (self._sent, self._newest):
            self._newest = drawn
            self._news.set()

    def end(self) -> None:
        """No more is shown."""
        self._is_over = True
        self._news.set()

    async def messages(self) -> AsyncIterator[bytes]:
        """Events, and heartbeats where nothing changes."""
        yield b": open\n\n"
        while True:
            if self._newest is not None:
                self._sent, self._newest = self._newest, None
                # Lines as the protocol knows them, for which a carriage return ends one, too: a text may hold others.
                lines = "".join(f"data: {line}\n" for line in _LINE_END.split(self._sent))
                yield f"event: page\n{lines}\n".encode()
            if self._is_over:
                return
            self._news.clear()
            await wait_at_most(self._news, HEARTBEAT_SECONDS)
            if not self._news.is_set():
                yield HEARTBEAT


class LivePages:
    """Those of one server; used on its event loop. `run` calls something in a thread."""

    def __init__(
        self, draw: Draw, run: Callable[[Callable[[], None]], Awaitable[None]], stopping: asyncio.Event
    ) -> None:
        self._draw = draw
        self._run = run
        self._stopping = stopping
        self._streams: set[PageStream] = set()
        self._drawing: asyncio.Task[None] | None = None

    def open(self, page: OpenPage) -> PageStream:
        """A stream of what stands in that page, until it is closed."""
        pages = {stream.page for stream in self._streams}
        if len(self._streams) >= MOST_STREAMS or (page not in pages and len(pages) >= MOST_PAGES):
            raise ProblemError("too-many-requests", "too many pages are open here already; this one stays as it is")
        if self._stopping.is_set():
            raise ProblemError("stopping", "the server is stopping; come again in a moment")
        stream = PageStream(page)
        self._streams.add(stream)
        if self._drawing is None:
            self._drawing = asyncio.create_task(self._go_round())
        return stream

    def close(self, stream: PageStream) -> None:
        """Nobody looks any more."""
        stream.end()
        self._streams.discard(stream)

    async def _go_round(self) -> None:
        try:
            while self._streams and not self._stopping.is_set():
                seconds = await self._draw_all()
                await wait_at_most(self._stopping, max(ROUND_SECONDS, seconds * (1 / MOST_SHARE - 1)))
        finally:
            self._drawing = None
            for stream in self._streams:
                stream.end()

    async def _draw_all(self) -> float:
        reads: Reads = {}
        took = 0.0
        for page in {stream.page for stream in self._streams}:
            drawn: list[str] = []

            def draw(page: OpenPage = page, drawn: list[str] = drawn) -> None:
                drawn.append(self._draw(page, reads))

            began = system.monotonic()
            try:
                await self._run(draw)
            except PenstockError as error:
                # What is shown stays, and the page says itself when it is not live any more.
                log.debug("a page could not be drawn again: %s", error)
                if not isinstance(error, PartitionUnavailable):
                    took += system.monotonic() - began
            except Exception:
                log.exception("a page could not be drawn again")
                took += system.monotonic() - began
            if drawn:
                took += min(system.monotonic() - began, LONGEST_DRAWING_SECONDS)
                for stream in [each for each in self._streams if each.page == page]:
                    stream.put(drawn[0])
        return took
