"""The server as a program: the application, run by uvicorn until SIGTERM or SIGINT.

Told to stop it takes no more connections, ends what waits, and answers what was accepted.
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import resource
import signal
import socket
from collections import deque
from dataclasses import dataclass
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from penstock.errors import InvalidInput
from penstock.model.checks import checked_count
from penstock.server.application import Application

__all__ = ["Address", "Server", "address_of", "bind", "bind_free", "make_server", "serve", "take_over"]

# A request's headers have so long, and a connection on which nothing comes.
HEADER_SECONDS = 10.0
IDLE_SECONDS = 65
# Of what is no body: a request's line and headers, what follows a body that comes in pieces, the sizes of the pieces.
MOST_HEADER_BYTES = 64 * 1024
GRACE_SECONDS = 30
MOST_CONNECTIONS = 20_000
OTHER_DESCRIPTORS = 1_000
BACKLOG = 2_048
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
USUAL_PORT = 8_080
# Garbage is looked for when there are so many objects more; a call of a thousand jobs makes some thousands at once.
NEW_OBJECTS = 20_000


@dataclass(frozen=True, slots=True)
class Address:
    """Where it listens."""

    url: str
    is_loopback: bool


class BoundedProtocol(HttpToolsProtocol):
    """HTTP on one connection, on which headers have to come in time, and are not endless: whoever sends them a byte at
    a time is cut off, and whoever sends too many.
    """

    _headers_due: asyncio.TimerHandle | None = None
    # Bytes that came since headers or a piece of a body were last complete.
    _pending = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # Requests that have another one behind them already.
        self._unanswered: deque[RequestResponseCycle] = deque()
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        self._pending += len(data)
        super().data_received(data)
        if self._pending > MOST_HEADER_BYTES and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()
        elif self._is_idle and self.timeout_keep_alive_task is None:
            # Blank lines between requests are none: they had ended the wait for one.
            self._await_headers()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_headers()

    def on_headers_complete(self) -> None:
        self._pending = 0
        self._forget_headers()
        if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr]
            self._unanswered.append(self.cycle)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        while self._unanswered and self._unanswered[0].response_complete:
            self._unanswered.popleft()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_headers()
        # uvicorn tells the last request alone: a stream of events before it would go on for ever.
        for each in self._unanswered:
            each.disconnected = True
            each.message_event.set()
        super().connection_lost(exc)

    @property
    def _is_idle(self) -> bool:
        """Whether nothing is being answered, and nobody waits for headers."""
        return self._headers_due is None and (self.cycle is None or self.cycle.response_complete)  # type: ignore[redundant-expr]

    def _await_headers(self) -> None:
        self._forget_headers()
        self._headers_due = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _forget_headers(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None


class Server(uvicorn.Server):
    """Tells the application of the end before it waits for what is under way."""

    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self._application = application

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """To be told to stop is no failure: the program ends with 0. Told again by Ctrl-C it waits for nothing."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """What waits is ended first: nobody would wait for a long poll."""
        self._application.begin_stop()
        await super().shutdown(sockets)


def bind(host: str, port: int) -> socket.socket:
    """Listen, or refuse with a sentence."""
    checked_count("port", port, least=0, most=65_535)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections have it from here. Without it the body of an answer waits until its headers are acknowledged: 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise InvalidInput("port", f"{host}:{port} cannot be listened at: {error}") from None
    return listener


def bind_free(host: str) -> socket.socket:
    """Listen at the usual port, or at a free one where that is taken."""
    try:
        return bind(host, USUAL_PORT)
    except InvalidInput:
        return bind(host, 0)


def take_over(descriptor: int) -> socket.socket:
    """The socket that another process of the same server listens at."""
    return socket.socket(fileno=descriptor)


def address_of(listener: socket.socket) -> Address:
    """Where it listens."""
    name, port = listener.getsockname()[:2]
    shown = f"[{name}]" if ":" in name else name
    return Address(f"http://{shown}:{port}", ipaddress.ip_address(name).is_loopback)


def make_server(application: Application) -> Server:
    """A server of it, not yet running."""
    _allow_descriptors()
    config = uvicorn.Config(
        application,
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        limit_concurrency=MOST_CONNECTIONS,
    )
    return Server(config, application)


def _allow_descriptors() -> None:
    """Let this process have a descriptor for each connection, as far as it may: a shell gives a thousand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + OTHER_DESCRIPTORS
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def serve(application: Application, listener: socket.socket) -> None:
    """Serve until told to stop."""
    server = make_server(application)
    _collect_seldom()
    server.run(sockets=[listener])


def _collect_seldom() -> None:
    """Let garbage be collected for less: all modules are looked through again and again otherwise while a body of a
    thousand jobs is read, which makes a call of them a third longer.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
