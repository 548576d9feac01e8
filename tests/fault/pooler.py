"""A transaction pooler before PostgreSQL, on loopback: clients share a few sessions, and have one for the length of a
transaction. It makes up process numbers, as poolers do, and when a client leaves in the middle of a transaction what it
sent runs to its end.

It can lose answers in the ways in which only a pooler does:

`late`       what the client sent is held back and the client cut off; it is sent on when the test says so
`under way`  it was sent on and the client is cut off at once: it may be done, or be done in a moment
"""

from __future__ import annotations

import queue
import random
import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Literal
from urllib.parse import urlsplit

import psycopg
from psycopg import pq

__all__ = ["Loss", "Pooler"]

Loss = Literal["late", "under way"]
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
TOLD = ("server_version", "server_encoding", "client_encoding", "standard_conforming_strings", "integer_datetimes")
TOLD_TOO = ("DateStyle", "TimeZone", "IntervalStyle", "in_hot_standby", "default_transaction_read_only")


class Pooler:
    """Listens on a port of its own; `url` leads through it."""

    def __init__(self, url: str, size: int = 8) -> None:
        self._server_url = url
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = url.replace(f":{urlsplit(url).port}/", f":{port}/") + "?sslmode=disable&gssencmode=disable"
        self._size = size
        self._made = 0
        self._idle: queue.SimpleQueue[Session] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._losses: list[tuple[Loss, Callable[[bytes], bool]]] = []
        self._held = threading.Event()
        self._clients: list[socket.socket] = []
        self._is_closed = False
        # How many answers were lost, and how many transactions that lost theirs have ended.
        self.lost = 0
        self.ended = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next(self, loss: Loss, is_meant: Callable[[bytes], bool]) -> None:
        """Cut off the next client that sends what is meant; what is late is held back from then on."""
        with self._lock:
            self._held.clear()
            self._losses.append((loss, is_meant))

    def send_on(self) -> None:
        """Send on what was held back."""
        self._held.set()

    def close(self) -> None:
        self._is_closed = True
        self._listener.close()
        self.send_on()
        for client in self._clients:
            _close(client)

    def take(self) -> Session:
        with self._lock:
            is_new = self._made < self._size and self._idle.empty()
            self._made += is_new
        if not is_new:
            return self._idle.get(timeout=60)
        return Session(self._server_url)

    def give_back(self, session: Session) -> None:
        if session.is_usable:
            self._idle.put(session)
        else:
            session.close()
            with self._lock:
                self._made -= 1

    def loss_of(self, chunk: bytes) -> Loss | None:
        with self._lock:
            for index, (loss, is_meant) in enumerate(self._losses):
                if is_meant(chunk):
                    del self._losses[index]
                    self.lost += 1
                    return loss
        return None

    def wait_until_sent_on(self) -> None:
        self._held.wait()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._clients.append(client)
            threading.Thread(target=Conversation(self, client).run, daemon=True).start()


class Session:
    """A session of the server's. The driver opens it, and then its socket is spoken to directly."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, sslmode="disable", gssencmode="disable")
        wire: pq.abc.PGconn = self._connection.pgconn
        names = (name.encode() for name in (*TOLD, *TOLD_TOO))
        self.parameters = {name: value for name in names if (value := wire.parameter_status(name)) is not None}
        self.socket = socket.socket(fileno=socket.dup(self._connection.fileno()))
        self.socket.setblocking(True)
        self._rest = b""
        self._awaited = 0
        self._is_begun = False
        self._asked_by = b""
        # Idle, in a transaction, or in one that failed.
        self.status = b"I"
        self.is_usable = True

    def send(self, messages: bytes) -> None:
        for kind, _ in _split(messages)[0]:
            is_whole = kind in (b"Q", b"S")
            self._awaited += is_whole
            # Statements that are sent ahead, and are a transaction until the client asks for the answers.
            if kind != b"H":
                self._is_begun = not is_whole
            self._asked_by = kind if is_whole else self._asked_by
        self.socket.sendall(messages)

    @property
    def is_free(self) -> bool:
        return self._awaited == 0 and self.status == b"I" and not self._is_begun

    @property
    def is_answering(self) -> bool:
        return self._awaited > 0

    def receive(self) -> bytes:
        """What came, in whole messages."""
        chunk = self.socket.recv(1 << 20)
        if not chunk:
            self.is_usable = False
            return b""
        messages, self._rest = _split(self._rest + chunk)
        for kind, body in messages:
            if kind == b"Z":
                self._awaited -= 1
                self.status = body
            elif kind == b"G" and self._asked_by == b"S":
                self._awaited -= 1  # A server that is copied to hears it only at the copy's end, when it is said again.
                self._is_begun = True
        return b"".join(kind + struct.pack("!I", len(body) + 4) + body for kind, body in messages)

    def close(self) -> None:
        self.is_usable = False
        self.socket.close()
        self._connection.close()


class Conversation:
    """With one client: a thread of its own, which waits for whichever side speaks."""

    def __init__(self, pooler: Pooler, client: socket.socket) -> None:
        self._pooler = pooler
        self._client = client
        self._rest = b""

    def run(self) -> None:
        with suppress(OSError, psycopg.Error):
            if self._greet():
                while messages := self._read():
                    if not self._transact(messages):
                        break
        _close(self._client)

    def _greet(self) -> bool:
        while True:
            size, code = struct.unpack("!II", self._exactly(8))
            self._exactly(size - 8)
            if code == CANCEL_REQUEST:
                return False
            if code not in (SSL_REQUEST, GSS_REQUEST):
                break
            self._client.sendall(b"N")
        session = self._pooler.take()
        told = b"".join(_message(b"S", name + b"\0" + value + b"\0") for name, value in session.parameters.items())
        self._pooler.give_back(session)
        made_up = struct.pack("!II", random.randrange(10**8, 2**31), 7)
        hello = _message(b"R", b"\0\0\0\0") + told + _message(b"K", made_up) + _message(b"Z", b"I")
        self._client.sendall(hello)
        return True

    def _transact(self, messages: bytes) -> bool:
        """One transaction, on one session; whether the client is still there."""
        if messages[:1] == b"X":
            return False
        session = self._pooler.take()
        try:
            if not self._pass_on(session, messages):
                return False
            while not session.is_free:
                # While it is answered a client may say more: it copies, or sends one statement after the other.
                speaking, _, _ = select.select([session.socket, self._client], [], [])
                if session.socket in speaking:
                    answer = session.receive()
                    if not session.is_usable:
                        return False
                    self._client.sendall(answer)
                elif not (messages := self._read()) or not self._pass_on(session, messages):
                    return False
            return True
        finally:
            if not session.is_free:
                session.close()
            self._pooler.give_back(session)

    def _pass_on(self, session: Session, messages: bytes) -> bool:
        """Send on what the client said, unless its answer is to be lost."""
        loss = self._pooler.loss_of(messages)
        if loss == "late":
            _close(self._client)
            self._pooler.wait_until_sent_on()
        session.send(messages)
        if loss is None:
            return True
        _close(self._client)
        self._see_to_its_end(session)
        return False

    def _see_to_its_end(self, session: Session) -> None:
        while session.is_answering and session.is_usable:
            session.receive()
        # The client has left in the middle of a transaction, or at its end.
        if not session.is_free:
            session.close()
        self._pooler.ended += 1

    def _read(self) -> bytes:
        """What the client sends next, in whole messages; statements up to where it asks for answers. Empty: it left."""
        said = b""
        while True:
            chunk = self._client.recv(1 << 20)
            if not chunk:
                return b""
            whole, self._rest = _split(self._rest + chunk)
            said += b"".join(_message(kind, body) for kind, body in whole)
            if said and (said[:1] not in (b"P", b"B") or any(kind in (b"S", b"H") for kind, _ in whole)):
                return said

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._client.recv(size - len(data))
            if not chunk:
                raise OSError("the client has left")
            data += chunk
        return data


def _split(data: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Whole messages, and what is left."""
    messages: list[tuple[bytes, bytes]] = []
    start = 0
    while len(data) - start >= 5:
        end = start + 1 + struct.unpack_from("!I", data, start + 1)[0]
        if end > len(data):
            break
        messages.append((data[start : start + 1], data[start + 5 : end]))
        start = end
    return messages, data[start:]


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
