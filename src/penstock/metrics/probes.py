"""Probes: the small HTTP thread by which a worker tells its metrics and its health.

It knows three paths and nothing of the rest of HTTP: a request is read up to its empty line, answered, and the
connection closed. One that is slow costs no other anything; where there are very many, the oldest is cut off. It asks
no database, so it answers whatever those do.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from penstock.errors import InvalidInput
from penstock.forking import let_go, renew_in_children
from penstock.metrics.exposition import CONTENT_TYPE
from penstock.metrics.health import workers_live, workers_ready
from penstock.metrics.working import worker_metrics
from penstock.worker import WorkerSnapshot

__all__ = ["Address", "Probes"]

log = logging.getLogger("penstock")

MOST_CONNECTIONS = 100
LONGEST_HEAD_BYTES = 8_192
PATIENCE_SECONDS = 5.0
PLAIN = "text/plain; charset=utf-8"
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Address(NamedTuple):
    """Where to listen, and the option that says so. Without a host: on every address of the machine."""

    option: str
    host: str
    port: int


class Answer(NamedTuple):
    """What is sent back."""

    status: int
    text: bytes
    content_type: str = PLAIN


class Probes:
    """Answers within the block. `snapshots` tells how the workers of this process stand. Given both the same port, one
    listener answers all; port 0 is any that is free, which is logged.
    """

    def __init__(
        self, snapshots: Callable[[], Sequence[WorkerSnapshot]], *, metrics: Address | None, health: Address | None
    ) -> None:
        self._snapshots = snapshots
        self._wanted = [
            (metrics, {"/metrics": self._metrics}),
            (health, {"/health/live": self._live, "/health/ready": self._ready}),
        ]
        self._listeners: list[tuple[socket.socket, dict[str, Callable[[], Answer]]]] = []
        # Those that are open, the oldest first.
        self._open: dict[asyncio.StreamWriter, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._is_up = threading.Event()
        renew_in_children(self, Probes._renew_after_fork)

    def __enter__(self) -> Self:
        by_place: dict[tuple[str, int], tuple[Address, dict[str, Callable[[], Answer]]]] = {}
        for address, paths in self._wanted:
            if address is not None:
                # Two that are to be any free port are two.
                place = (address.host, address.port) if address.port else (address.option, 0)
                by_place.setdefault(place, (address, {}))[1].update(paths)
        try:
            for address, paths in by_place.values():
                listener = _listen(address)
                self._listeners.append((listener, paths))
                log.info("answers %s on port %d", " and ".join(paths), listener.getsockname()[1])
        except BaseException:
            self._close()
            raise
        if self._listeners:
            self._thread = threading.Thread(target=self._run, name="penstock-probes", daemon=True)
            self._thread.start()
            self._is_up.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with suppress(RuntimeError):  # It has ended by itself.
                loop.call_soon_threadsafe(stop.set)
        if self._thread is not None:
            self._thread.join(PATIENCE_SECONDS)
        self._close()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._stop = asyncio.Event()
            runner.run(self._serve(self._stop))

    async def _serve(self, stop: asyncio.Event) -> None:
        servers = [
            await asyncio.start_server(_handler(self, paths), sock=listener, limit=LONGEST_HEAD_BYTES)
            for listener, paths in self._listeners
        ]
        self._is_up.set()
        await stop.wait()
        for each in servers:
            each.close()

    async def answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, paths: dict[str, Callable[[], Answer]]
    ) -> None:
        """Answer one request, and close."""
        self._open[writer] = None
        if len(self._open) > MOST_CONNECTIONS:
            # It has had the longest time to say something.
            next(iter(self._open)).transport.abort()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_respond(head, paths))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            # Whoever it is has gone, or is no client of ours.
            pass
        finally:
            del self._open[writer]
            writer.close()

    def _metrics(self) -> Answer:
        return Answer(200, worker_metrics(self._snapshots()), CONTENT_TYPE)

    def _live(self) -> Answer:
        health = workers_live(self._snapshots())
        return Answer(health.status, f"{health.text}\n".encode())

    def _ready(self) -> Answer:
        health = workers_ready(self._snapshots())
        return Answer(health.status, f"{health.text}\n".encode())

    def _close(self) -> None:
        for listener, _ in self._listeners:
            listener.close()
        self._listeners = []

    def _renew_after_fork(self) -> None:
        """In a forked child: the parent answers, and the port is free when that has ended."""
        for listener, _ in self._listeners:
            with suppress(OSError):
                let_go(listener.fileno())
        self._listeners, self._thread, self._loop, self._stop = [], None, None, None


def _handler(
    probes: Probes, paths: dict[str, Callable[[], Answer]]
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await probes.answer(reader, writer, paths)

    return handle


def _listen(address: Address) -> socket.socket:
    has_both = not address.host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if has_both or ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, dualstack_ipv6=has_both)
    except (OSError, UnicodeError) as error:
        where = f"{address.host or 'any address'}, port {address.port}"
        raise InvalidInput(
            address.option, f"nothing can listen on {where} ({error}): give another port, or end what has it"
        ) from error


def _respond(head: bytes, paths: dict[str, Callable[[], Answer]]) -> bytes:
    """The response to a request, by its first line."""
    method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    target, _, version = rest.rpartition(" ")
    path = target.partition("?")[0]
    if not version.startswith("HTTP/1."):
        answer = Answer(400, b"this is no request of HTTP/1\n")
    elif path not in paths:
        answer = Answer(404, f"here are {', '.join(paths)}\n".encode())
    elif method not in ("GET", "HEAD"):
        answer = Answer(405, b"only GET and HEAD are answered\n")
    else:
        answer = paths[path]()
    status = f"HTTP/1.1 {answer.status} {REASONS[answer.status]}"
    fields = f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.text)}\r\nCache-Control: no-store"
    text = b"" if method == "HEAD" else answer.text
    return f"{status}\r\n{fields}\r\nConnection: close\r\n\r\n".encode() + text
