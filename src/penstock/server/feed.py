"""The feed: one reader of a server asks once a second what any of its streams wants to know, and tells each of them.

However many clients there are, the databases are asked the same; and nothing that nobody wants.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from penstock.admin import DeadLetters, DeadLettersSeen
from penstock.app import App
from penstock.errors import PenstockError
from penstock.model.dead_letter import DeadLetter
from penstock.model.records import record
from penstock.server.job_ends import wait_at_most
from penstock.server.problem import ProblemError
from penstock.server.threads import CallThreads

__all__ = ["Feed", "Stream", "Wanted", "dead_letter_event", "event"]

log = logging.getLogger("penstock")

LOOK_SECONDS = 1.0
HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": still here\n\n"
MOST_STREAMS = 1_000
# What waits for a client that does not read; then its stream ends, and it may come again.
MOST_WAITING_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a stream is to be told: figures of queues; dead letters, of these queues only if there are some; a load."""

    queues: frozenset[str] = frozenset()
    dead_letters: bool = False
    load: str | None = None
    hides_args: bool = False


def event(name: str, value: object, id_: str | None = None) -> bytes:
    """A value as an event; its `id` is what a client that comes again begins with."""
    head = f"event: {name}\n" if id_ is None else f"event: {name}\nid: {id_}\n"
    return head.encode() + b"data: " + msgspec.json.encode(record(value)) + b"\n\n"


def dead_letter_event(letter: DeadLetter, *, hides_args: bool) -> bytes:
    """A dead letter, whose time is where a client that comes again goes on."""
    shown = replace(letter, error=None) if hides_args else letter
    return event("dead_letter", shown, letter.failed_at.isoformat())


class Stream:
    """What one client is told, in order."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._messages: deque[bytes] = deque()
        self._size = 0
        self._is_over = False
        self._news = asyncio.Event()

    def put(self, message: bytes) -> None:
        """Tell the client; one that has not read what it was told before is told no more."""
        if self._messages and self._size + len(message) > MOST_WAITING_BYTES:
            self.end()
        if not self._is_over:
            self._messages.append(message)
            self._size += len(message)
            self._news.set()

    def end(self) -> None:
        """No more is told, but for what waits."""
        self._is_over = True
        self._news.set()

    async def messages(self) -> AsyncIterator[bytes]:
        """What it is told, and heartbeats."""
        while True:
            while self._messages:
                message = self._messages.popleft()
                self._size -= len(message)
                yield message
            if self._is_over:
                return
            self._news.clear()
            await wait_at_most(self._news, HEARTBEAT_SECONDS)
            if not self._news.is_set():
                yield HEARTBEAT


@dataclass(slots=True)
class _Dead:
    """How far dead letters were read, and which of the last were told."""

    seen: Mapping[int, DeadLettersSeen] = field(default_factory=dict)
    told: set[tuple[int, datetime]] = field(default_factory=set)
    is_begun: bool = False

    def take(self, look: DeadLetters) -> list[DeadLetter]:
        """What of a look was not told yet."""
        new = [letter for letter in look.found if (letter.job_id, letter.failed_at) not in self.told]
        oldest = min((seen.at for seen in look.seen.values()), default=None)
        self.told |= {(letter.job_id, letter.failed_at) for letter in new}
        if oldest is not None:
            # The next look goes back no further.
            self.told = {each for each in self.told if each[1] >= oldest}
        self.seen = look.seen
        return new


class Feed:
    """One of a server; used on the event loop."""

    def __init__(self, app: App, threads: CallThreads, stopping: asyncio.Event) -> None:
        self._app = app
        self._threads = threads
        self._stopping = stopping
        self._streams: set[Stream] = set()
        self._reading: asyncio.Task[None] | None = None
        self._dead = _Dead()
        self._dead_lock = asyncio.Lock()

    async def open(self, wanted: Wanted) -> Stream:
        """A stream that is told what it wants from when this returns, until it is closed."""
        if len(self._streams) >= MOST_STREAMS:
            raise ProblemError(
                "too-many-requests", f"{MOST_STREAMS} streams of events are open here already; come again later"
            )
        if self._stopping.is_set():
            raise ProblemError("stopping", "the server is stopping; come again in a moment")
        stream = Stream(wanted)
        self._streams.add(stream)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        try:
            if wanted.dead_letters and not self._dead.is_begun:
                await self._look_for_dead()
        except BaseException:
            self.close(stream)
            raise
        return stream

    def close(self, stream: Stream) -> None:
        """Tell it no more."""
        stream.end()
        self._streams.discard(stream)

    async def _read(self) -> None:
        try:
            while self._streams and not self._stopping.is_set():
                try:
                    await self._look()
                except PenstockError as error:
                    log.warning("events could not be read: %s", error)
                await wait_at_most(self._stopping, LOOK_SECONDS)
        finally:
            self._reading = None
            self._dead = _Dead()
            for stream in self._streams:
                stream.end()

    async def _look(self) -> None:
        streams = list(self._streams)
        queues = frozenset[str]().union(*(stream.wanted.queues for stream in streams))
        loads = {stream.wanted.load for stream in streams if stream.wanted.load is not None}
        if queues:
            figures = await self._threads.run(lambda: self._app.queues(queues))
            self._tell_figures({stats.queue: event("stats", stats) for stats in figures})
        if loads:
            found = await self._threads.run(lambda: self._app.loads(names=sorted(loads)))
            self._tell_loads({load.name: event("load", load) for load in found})
        if any(stream.wanted.dead_letters for stream in streams):
            await self._look_for_dead()
        else:
            self._dead = _Dead()

    def _tell_figures(self, events: Mapping[str, bytes]) -> None:
        for stream in list(self._streams):
            for queue in stream.wanted.queues:
                if queue in events:
                    stream.put(events[queue])

    def _tell_loads(self, events: Mapping[str, bytes]) -> None:
        for stream in list(self._streams):
            if stream.wanted.load is not None and stream.wanted.load in events:
                stream.put(events[stream.wanted.load])

    async def _look_for_dead(self) -> None:
        async with self._dead_lock:
            dead, is_all = self._dead, False
            while not is_all and not self._stopping.is_set():
                found: DeadLetters = await self._threads.run(lambda: self._app.dead_letters(dead.seen))
                new = dead.take(found)
                # What the first look finds became so before anybody asked.
                if dead.is_begun:
                    self._tell_dead(new)
                is_all = found.is_all
            dead.is_begun = True

    def _tell_dead(self, letters: Iterable[DeadLetter]) -> None:
        for letter in letters:
            plain = hidden = None
            for stream in list(self._streams):
                wanted = stream.wanted
                if not wanted.dead_letters or (wanted.queues and letter.queue not in wanted.queues):
                    continue
                if wanted.hides_args:
                    hidden = hidden or dead_letter_event(letter, hides_args=True)
                    stream.put(hidden)
                else:
                    plain = plain or dead_letter_event(letter, hides_args=False)
                    stream.put(plain)
