"""A TCP proxy before PostgreSQL that cuts a connection at the worst moment: when a COMMIT is under way.

`answered`   the server has done it and its answer is swallowed: it is certainly done, and the client cannot know
`ended`      the same, but where the answer would end the client hears that its session does: what a server says that is
             stopped, or whose session is terminated, just after the commit
`racing`     it was passed on and the client is cut off at once: it may be done, or be done in a moment
`unsent`     it never arrives: it is certainly not done

Or a flow goes dead without a word: nothing that is sent on it arrives any more, and nobody is told.

`swallowed`  from here on nothing arrives at either end
`unheard`    the server does this, and its answers do not arrive

What a chunk of the client's says is known from its bytes: text that a statement contains, or, where statements are
prepared, what the session has said before.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal
from urllib.parse import urlsplit

__all__ = ["Cut", "Proxy", "called"]

Cut = Literal["answered", "ended", "racing", "unsent", "swallowed", "unheard"]
# Which end hears nothing any more.
Deaf = Literal["server", "client"]
READY = b"Z\x00\x00\x00\x05"
_SAID = b"SFATAL\x00VFATAL\x00C57P01\x00Mterminating connection due to administrator command\x00\x00"
ENDED = b"E" + (len(_SAID) + 4).to_bytes(4, "big") + _SAID


class Proxy:
    """Listens on a port of its own; `url` leads through it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._server = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = url.replace(f":{parts.port}/", f":{port}/") + "?sslmode=disable&gssencmode=disable"
        self._lock = threading.Lock()
        self._cuts: list[tuple[Cut, Callable[[bytes, bytes], bool]]] = []
        self.cut_count = 0
        # Whether it goes down with a cut, before the client knows of it: nothing can be found out.
        self.goes_down_when_answered = False
        self._sockets: list[socket.socket] = []
        self._said: dict[socket.socket, bytes] = {}
        # By the client's socket.
        self._deaf: dict[socket.socket, set[Deaf]] = {}
        self._is_lost: Callable[[bytes], bool] = lambda _: False
        self.is_down = False
        # Seconds that each chunk of either side is late: a slow disk, a long way.
        self.delay = 0.0
        self._flows = threading.Event()
        self._flows.set()
        self._answers = threading.Event()
        self._answers.set()
        self._refused = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next(self, cut: Cut, is_meant: Callable[[bytes, bytes], bool]) -> None:
        """Cut the next connection on which a client sends what is meant: is_meant(chunk, all it said before)."""
        with self._lock:
            self._cuts.append((cut, is_meant))

    @property
    def has_cuts(self) -> bool:
        """Whether there is a cut that nobody has met yet."""
        return bool(self._cuts)

    def cut_now(self, is_meant: Callable[[bytes], bool]) -> None:
        """Cut every client off that has said what is meant, whatever it waits for."""
        for client, said in list(self._said.items()):
            if is_meant(said):
                _close(client)

    def kill_flows(self, is_meant: Callable[[bytes], bool]) -> int:
        """Pass nothing on any more, either way, for every client that has said what is meant; how many those are."""
        dead = [client for client, said in list(self._said.items()) if is_meant(said)]
        for client in dead:
            self._deaf[client] = {"server", "client"}
        return len(dead)

    def lose(self, is_meant: Callable[[bytes], bool] = lambda _: False) -> None:
        """Swallow what clients say that say what is meant, those who come from now on too."""
        self._is_lost = is_meant

    def go_down(self) -> None:
        """Cut everybody off and refuse all who come."""
        self.is_down = True
        for each in list(self._sockets):
            _close(each)

    def come_up(self) -> None:
        self.is_down = False

    def stall(self) -> None:
        """Take every connection and pass nothing on, either way: as a server that is stopped, or whose disk hangs."""
        self._flows.clear()

    def hold_answers(self) -> None:
        """Pass on what clients say, and nothing of what the server answers: it has done it, and nobody knows."""
        self._answers.clear()

    def flow(self) -> None:
        """Pass on what was held up, and all that follows."""
        self._flows.set()
        self._answers.set()

    def refused_someone(self) -> bool:
        """Whether somebody came in vain since this was last asked."""
        refused, self._refused = self._refused, 0
        return refused > 0

    def close(self) -> None:
        self._listener.close()
        self.flow()
        self.go_down()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_down:
                self._refused += 1
                client.close()
                continue
            server = socket.create_connection(self._server)
            self._sockets += [client, server]
            swallowing = Swallowing()
            for target in (self._forward, self._back):
                threading.Thread(target=target, args=(client, server, swallowing), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket, swallowing: Swallowing) -> None:
        said = b""
        with suppress(OSError):
            while chunk := client.recv(1 << 20):
                self._hold_up()
                cut = self._meant(chunk, said)
                # The first words tell who it is.
                said = self._said[client] = said[:1000] + (said[1000:] + chunk)[-2_000_000:]
                if cut == "unsent":
                    break
                if cut in ("swallowed", "unheard"):
                    self._deaf[client] = {"server", "client"} if cut == "swallowed" else {"client"}
                if "server" in self._deaf.get(client, ()) or self._is_lost(said):
                    continue
                if cut in ("answered", "ended"):
                    swallowing.cut = cut
                server.sendall(chunk)
                if cut == "racing":
                    break
        self._said.pop(client, None)
        # Of a dead flow not even the end arrives.
        if swallowing.cut is None and client not in self._deaf and not self._is_lost(said):
            _close(client)
            _close(server)

    def _back(self, client: socket.socket, server: socket.socket, swallowing: Swallowing) -> None:
        with suppress(OSError):
            while chunk := server.recv(1 << 20):
                if swallowing.cut is not None:
                    # Read on until the server is ready for the next statement: what was asked is done.
                    while READY not in chunk:
                        more = server.recv(1 << 20)
                        if not more:
                            break
                        chunk += more
                    if self.goes_down_when_answered:
                        self.go_down()
                    if swallowing.cut == "ended":
                        client.sendall(chunk.partition(READY)[0] + ENDED)
                    break
                self._hold_up()
                self._answers.wait()
                if "client" not in self._deaf.get(client, ()):
                    client.sendall(chunk)
        if client not in self._deaf:
            _close(client)
        _close(server)

    def _hold_up(self) -> None:
        self._flows.wait()
        if self.delay:
            time.sleep(self.delay)

    def _meant(self, chunk: bytes, said: bytes) -> Cut | None:
        with self._lock:
            for index, (cut, is_meant) in enumerate(self._cuts):
                if is_meant(chunk, said):
                    del self._cuts[index]
                    self.cut_count += 1
                    return cut
        return None


def called(name: str) -> Callable[[bytes], bool]:
    """Whether a client has said that this is its application's name."""
    said = b"application_name\0" + name.encode() + b"\0"
    return lambda everything: said in everything


class Swallowing:
    """What a connection's next answer is swallowed for."""

    cut: Cut | None = None


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
