"""Worker processes, forked from one that has imported everything: a start costs a tenth of a program's.

`python -m tests.fault.spawner FD` is that process. It has no threads and no connections, takes orders from the socket,
forks, and tells how each of its children ended. A child leaves the loop and goes on as a worker program would.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
from tests.fault.crew import Orders, work

__all__ = ["Spawner", "WorkerProcess"]

ROOT = Path(__file__).parents[2]


class _Start(msgspec.Struct):
    orders: Orders
    log: str


class _Told(msgspec.Struct):
    """A child began, or ended with a code (below 0: by that signal)."""

    pid: int
    code: int | None = None


class WorkerProcess:
    """A worker, with the face of a Popen."""

    def __init__(self, spawner: Spawner, pid: int) -> None:
        self._spawner = spawner
        self.pid = pid

    @property
    def returncode(self) -> int | None:
        return self._spawner.code_of(self.pid)

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            # It is no child of this process; one that has just ended was reaped by its parent.
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def wait(self, timeout: float = 600.0) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout)
            time.sleep(0.002)
        return code


class Spawner:
    """Starts workers; they end with it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        fd = theirs.fileno()
        self._process = subprocess.Popen([sys.executable, "-m", __name__, str(fd)], pass_fds=[fd], cwd=ROOT)
        theirs.close()
        self._lock = threading.Lock()
        self._unread = b""
        self._codes: dict[int, int] = {}

    def start(self, orders: Orders, log: Path) -> WorkerProcess:
        with self._lock:
            self._socket.setblocking(True)
            self._socket.sendall(msgspec.json.encode(_Start(orders, str(log))) + b"\n")
            while True:
                for told in self._read():
                    if told.code is None:
                        return WorkerProcess(self, told.pid)

    def code_of(self, pid: int) -> int | None:
        with self._lock:
            self._socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                self._read()
            return self._codes.get(pid)

    def _read(self) -> list[_Told]:
        chunk = self._socket.recv(1 << 16)
        assert chunk, "the process that forks workers has ended"
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        told = [msgspec.json.decode(line, type=_Told) for line in lines]
        self._codes |= {each.pid: each.code for each in told if each.code is not None}
        for each in told:
            if each.code is None:
                self._codes.pop(each.pid, None)  # The number of one that ended long ago was given again.
        return told

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def _serve(orders: socket.socket) -> _Start:
    """Fork for each order; return only in a child, with its own, or never."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    import selectors

    selector = selectors.DefaultSelector()
    selector.register(orders, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    alive: set[int] = set()
    unread = b""
    while True:
        for key, _ in selector.select():
            if key.fileobj == woken:
                os.read(woken, 4096)
                for pid, code in _ended(alive):
                    orders.sendall(msgspec.json.encode(_Told(pid, code)) + b"\n")
                continue
            chunk = orders.recv(1 << 16)
            if not chunk:
                for pid in alive:
                    os.kill(pid, signal.SIGKILL)
                sys.exit()
            *lines, unread = (unread + chunk).split(b"\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    selector.close()
                    for fd in (woken, wakes):
                        os.close(fd)
                    orders.close()
                    return msgspec.json.decode(line, type=_Start)
                alive.add(pid)
                orders.sendall(msgspec.json.encode(_Told(pid)) + b"\n")


def _ended(alive: set[int]) -> list[tuple[int, int]]:
    """The children that have ended since this was last asked, and how."""
    found: list[tuple[int, int]] = []
    while alive:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            break
        alive.discard(pid)
        found.append((pid, os.waitstatus_to_exitcode(status)))
    return found


def main() -> Any:
    # The parent ends this process by closing the socket; whoever interrupts the run interrupts the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start = _serve(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = os.open(start.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    work(start.orders)


if __name__ == "__main__":
    main()
