"""What a client holds of the server: its URL, and the lock that keeps it running."""

from __future__ import annotations

import fcntl
import json
import math
import os
import socket
import struct
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from penstock.clock import system
from penstock.embedded.account import server_account
from penstock.embedded.binaries import find_binaries
from penstock.embedded.cluster import DATABASE, ROLE, make_cluster, write_settings
from penstock.embedded.home import find_home
from penstock.errors import PartitionUnavailable, PenstockError

POLL_SECONDS = 0.01
ANSWER_SECONDS = 5.0
# A server that is stopped is waited for at least so long: what asks for it next launches a new one.
STOP_SECONDS = 5.0
LOG_BYTES = 16 * 1024 * 1024
PROTOCOL_3 = 196_608
Launching = Callable[[], AbstractContextManager[None]]
Creating = Callable[[Path], None]


class Server:
    """A hold on a running server. The server stops when the last hold of any process is closed or its process dead."""

    def __init__(self, home: Path, hold: int) -> None:
        self.home = home
        self._release = weakref.finalize(self, os.close, hold)

    @property
    def url(self) -> str:
        """What any client with libpq 16 or later connects with; it stays the same over restarts while its port is free.

        Another program that takes the port in between is not told the password: SCRAM proves it without.
        """
        password = (self.home / "password").read_text()
        return f"postgresql://{ROLE}:{password}@127.0.0.1:{_port(self.home)}/{DATABASE}?require_auth=scram-sha-256"

    def close(self) -> None:
        """Let the server go. Closing again does nothing."""
        self._release()

    def __repr__(self) -> str:
        return f"Server({str(self.home)!r})"


def start(
    folder: Path,
    *,
    settings: Mapping[str, str] | None = None,
    seconds: float | None = None,
    launching: Launching = nullcontext,
    creating: Creating = lambda _: None,
) -> Server:
    """The running server of this folder. Whoever comes first makes and launches it, with these settings on top.

    One that runs already is given so many seconds to answer; making and launching one, inside of the block that
    `launching` opens, takes as long as it takes. `creating` is told where, before a data folder is made, by whichever
    process makes it; what it raises keeps it from being made.
    """
    home = find_home(folder)
    wait = _Wait(home, seconds)
    # Waits while a supervisor whose last client is gone stops the server.
    hold = wait.for_lock(home / "clients.lock", fcntl.LOCK_SH, wait.refuse_stopping)
    try:
        starter = wait.for_lock(home / "start.lock", fcntl.LOCK_EX, wait.refuse_silent)
        try:
            _ensure_accepting(home, settings or {}, wait, launching, creating)
        finally:
            _unlock(starter)
    except BaseException:
        os.close(hold)
        raise
    return Server(home, hold)


def is_running(folder: Path) -> bool:
    """Whether the server of this folder runs and is ready, for whoever would not launch one to ask it something."""
    home = find_home(folder)
    return _is_supervised(home) and _is_marked_ready(home)


class _Wait:
    """How long a client waits for a server that it has not launched itself."""

    def __init__(self, home: Path, seconds: float | None) -> None:
        self._home = home
        self._seconds = math.inf if seconds is None else seconds
        self._began_at = system.monotonic()

    @property
    def left(self) -> float:
        return self._seconds - self._spent

    @property
    def _spent(self) -> float:
        return system.monotonic() - self._began_at

    def for_lock(self, path: Path, kind: int, refuse: Callable[[], None]) -> int:
        """Get a lock, unless whoever has it is not worth waiting for any more."""
        while True:
            with suppress(BlockingIOError):
                return _lock(path, kind | fcntl.LOCK_NB)
            refuse()
            system.sleep(POLL_SECONDS)

    def refuse_silent(self) -> None:
        """Raise where the server is up and does not answer in time: who has the lock waits for the same."""
        if self.left <= 0.0 and _is_supervised(self._home) and _is_marked_ready(self._home):
            self.refuse()

    def refuse_stopping(self) -> None:
        """Raise where the server does not come to its end: one that is well needs a moment for it."""
        if self._spent > max(self._seconds, STOP_SECONDS):
            raise PartitionUnavailable(
                f"{self._named} is being stopped, and has not ended within {self._spent:.0f} s; see whether it hangs "
                f"({self._home / 'postgresql.log'} tells more), then call again"
            )

    def refuse(self) -> None:
        """Raise: it runs, and that is all."""
        seconds = round(self._seconds, 1)
        raise PartitionUnavailable(
            f"{self._named} runs, and does not answer within {seconds:g} s; see whether it is suspended or hangs "
            f"({self._home / 'postgresql.log'} tells more), then call again"
        )

    @property
    def _named(self) -> str:
        mark = _mark(self._home)
        return f"the embedded PostgreSQL in {self._home}" + (f", process {mark[0]}," if mark else "")


def _ensure_accepting(
    home: Path, settings: Mapping[str, str], wait: _Wait, launching: Launching, creating: Creating
) -> None:
    while _is_supervised(home):
        # At least a moment: an answer may be there already.
        if _is_accepting(_port(home), min(max(wait.left, POLL_SECONDS), ANSWER_SECONDS)):
            return
        if wait.left <= 0.0:
            wait.refuse()
        system.sleep(POLL_SECONDS)
    if not (home / "data").exists():
        creating(home)
    with launching():
        _launch(home, settings)
        while _is_supervised(home):
            if _is_accepting(_port(home), ANSWER_SECONDS):
                return
            system.sleep(POLL_SECONDS)
    log = home / "postgresql.log"
    raise PenstockError(f"the embedded PostgreSQL did not start: {_last_words(log)}; {log} tells more")


def _launch(home: Path, settings: Mapping[str, str]) -> None:
    account = server_account(home / "data")
    binaries = find_binaries(account)
    make_cluster(home, binaries, account)
    write_settings(home, settings)
    log = home / "postgresql.log"
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
    plan = {
        "postgres": str(binaries.folder / "postgres"),
        "uid": account.uid if account.is_other else None,
        "gid": account.gid if account.is_other else None,
    }
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as output:
        subprocess.run(
            # Isolated and without site-packages: nothing of the program's environment reaches it, and it is up at once.
            [sys.executable, "-I", "-S", Path(__file__).with_name("supervisor.py"), home, json.dumps(plan)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            start_new_session=True,
            check=True,
        )


def _lock(path: Path, kind: int) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except PermissionError as error:
        raise PenstockError(
            f"{path.parent} belongs to another user: run as its owner, or choose another folder"
        ) from error
    try:
        fcntl.flock(descriptor, kind)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _unlock(descriptor: int) -> None:
    """Give a lock back for good: a child that was forked meanwhile has it too, and would keep it."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _is_supervised(home: Path) -> bool:
    try:
        _unlock(_lock(home / "supervisor.lock", fcntl.LOCK_SH | fcntl.LOCK_NB))
    except BlockingIOError:
        return True
    return False


def _mark(home: Path) -> list[str]:
    """What the server tells of itself: its process first, what it does last."""
    try:
        return (home / "data" / "postmaster.pid").read_text().splitlines()
    except OSError:
        return []


def _is_marked_ready(home: Path) -> bool:
    return [line.strip() for line in _mark(home)[-1:]] == ["ready"]


def _port(home: Path) -> int | None:
    try:
        return int((home / "port").read_text())
    except FileNotFoundError:
        return None


def _is_accepting(port: int | None, seconds: float) -> bool:
    """Ask for a session as any client would: only a server that is ready asks back for a password."""
    if port is None:
        return False
    request = struct.pack("!i", PROTOCOL_3) + f"user\0{ROLE}\0database\0{DATABASE}\0\0".encode()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
            connection.sendall(struct.pack("!i", len(request) + 4) + request)
            # Read whole: an answer left unread would reset the connection, and the server would log it.
            return connection.recv(4096)[:1] == b"R"
    except OSError:
        return False


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    fatal = [line.partition("FATAL:")[2].strip() for line in lines if "FATAL:" in line]
    return fatal[-1] if fatal else (lines[-1] if lines else "it said nothing")
