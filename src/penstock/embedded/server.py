"""What a client holds of the server: its URL, and the lock that keeps it running."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from pathlib import Path

from penstock.embedded.account import server_account
from penstock.embedded.binaries import find_binaries
from penstock.embedded.cluster import DATABASE, ROLE, make_cluster, write_settings
from penstock.embedded.home import find_home
from penstock.errors import PenstockError

POLL_SECONDS = 0.01
ANSWER_SECONDS = 5.0
LOG_BYTES = 16 * 1024 * 1024
PROTOCOL_3 = 196_608


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


def start(folder: Path, *, settings: Mapping[str, str] | None = None) -> Server:
    """The running server of this folder. Whoever comes first makes and launches it, with these settings on top."""
    home = find_home(folder)
    # Waits while a supervisor whose last client is gone stops the server.
    hold = _lock(home / "clients.lock", fcntl.LOCK_SH)
    try:
        starter = _lock(home / "start.lock", fcntl.LOCK_EX)
        try:
            _ensure_accepting(home, settings or {})
        finally:
            _unlock(starter)
    except BaseException:
        os.close(hold)
        raise
    return Server(home, hold)


def _ensure_accepting(home: Path, settings: Mapping[str, str]) -> None:
    is_launched = False
    while True:
        if _is_supervised(home):
            if _is_accepting(_port(home)):
                return
            time.sleep(POLL_SECONDS)
        elif is_launched:
            log = home / "postgresql.log"
            raise PenstockError(f"the embedded PostgreSQL did not start: {_last_words(log)}; {log} tells more")
        else:
            _launch(home, settings)
            is_launched = True


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


def _port(home: Path) -> int | None:
    try:
        return int((home / "port").read_text())
    except FileNotFoundError:
        return None


def _is_accepting(port: int | None) -> bool:
    """Ask for a session as any client would: only a server that is ready asks back for a password."""
    if port is None:
        return False
    request = struct.pack("!i", PROTOCOL_3) + f"user\0{ROLE}\0database\0{DATABASE}\0\0".encode()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(struct.pack("!i", len(request) + 4) + request)
            # Read whole: an answer left unread would reset the connection, and the server would log it.
            return connection.recv(4096)[:1] == b"R"
    except OSError:
        return False


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    fatal = [line.partition("FATAL:")[2].strip() for line in lines if "FATAL:" in line]
    return fatal[-1] if fatal else (lines[-1] if lines else "it said nothing")
