"""The PostgreSQL a question is measured on: the embedded one, in a folder that is thrown away."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import psycopg
from psycopg import sql

from penstock import embedded
from penstock.storage.schema import migrate

__all__ = ["DURABILITY", "Connection", "Server", "connect", "cpu_seconds", "started_server", "wal_position"]

Connection = psycopg.Connection[tuple]

TEMPLATE = "penstock_template"
DURABILITY = ("fsync", "synchronous_commit", "full_page_writes")
STATED = (*DURABILITY, "server_version", "shared_buffers", "max_wal_size", "wal_compression")


def connect(url: str) -> Connection:
    """A plain connection in autocommit mode."""
    return psycopg.connect(url, autocommit=True)


def wal_position(connection: Connection) -> int:
    """How many bytes of WAL have been written so far."""
    return int(connection.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()[0])


def cpu_seconds(process: int) -> float:
    """How much CPU a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Server:
    """Gives out fresh databases with the schema in them."""

    def __init__(self, url: str, home: Path) -> None:
        self._url = url
        self._home = home
        self._supervisor: int | None = None
        self._numbers = count(1)
        with connect(url) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(TEMPLATE)))
        with connect(self._url_of(TEMPLATE)) as connection:
            migrate(connection)

    @contextmanager
    def database(self, like: str | None = None) -> Iterator[str]:
        """The URL of a database that exists for as long as the block lasts, right after a checkpoint.

        `like`: the URL of one that nobody is connected to any more; it begins as a copy of that.
        """
        name = f"bench_{next(self._numbers)}"
        identifier = sql.Identifier(name)
        template = sql.Identifier(TEMPLATE if like is None else like.rpartition("/")[2])
        with connect(self._url) as connection:
            connection.execute(sql.SQL("create database {} template {}").format(identifier, template))
            connection.execute("checkpoint")
        try:
            yield self._url_of(name)
        finally:
            self.come_up()
            with self._connected() as connection:
                connection.execute(sql.SQL("drop database {} with (force)").format(identifier))

    def _connected(self) -> Connection:
        """A connection, as soon as the server takes one."""
        while True:
            try:
                return connect(self._url)
            except psycopg.OperationalError:
                time.sleep(0.05)

    def settings(self) -> dict[str, str]:
        """What the figures depend on."""
        with connect(self._url) as connection:
            return {name: connection.execute("select current_setting(%s)", [name]).fetchone()[0] for name in STATED}

    def cpu_seconds(self) -> dict[int, float]:
        """How much CPU each of its processes has used, by their numbers."""
        postmaster = (self._home / "data" / "postmaster.pid").read_text().split()[0]
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        found = {}
        for process in map(int, (postmaster, *children)):
            with suppress(OSError):  # It has ended meanwhile.
                found[process] = cpu_seconds(process)
        return found

    def kill(self) -> None:
        """SIGKILL, as if the machine were gone; it is started again at once, unless it was told to stay down."""
        pid = int((self._home / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)

    def go_down(self) -> None:
        """Kill it, and whoever would start it again waits."""
        pid = (self._home / "data" / "postmaster.pid").read_text().split()[0]
        stat = Path(f"/proc/{pid}/stat").read_text()
        self._supervisor = int(stat.rpartition(")")[2].split()[1])
        os.kill(self._supervisor, signal.SIGSTOP)
        self.kill()

    def come_up(self) -> None:
        """Let it be started again."""
        if self._supervisor is not None:
            os.kill(self._supervisor, signal.SIGCONT)
            self._supervisor = None

    def _url_of(self, database: str) -> str:
        return f"{self._url.rpartition('/')[0]}/{database}"


@contextmanager
def started_server() -> Iterator[Server]:
    """A server for as long as the block lasts; nothing of it is left."""
    parent = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    # Where root runs this, the server's account must be able to enter.
    parent.chmod(0o755)
    home = parent / ".penstock"
    try:
        held = embedded.start(home)
        server = Server(held.url, home)
        try:
            yield server
        finally:
            server.come_up()
            held.close()
            with (home / "supervisor.lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
    finally:
        shutil.rmtree(parent, ignore_errors=True)
