"""Servers and databases that live as long as a block.

A run makes more than a thousand databases, each a copy of some three hundred files. They lie in memory where the
machine has a folder there with room enough, which is ten times as fast as a disk; durability stays on all the same.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import psycopg
from psycopg import sql

from penstock import embedded
from penstock.embedded import Server

__all__ = ["Backup", "created_database", "open_folder", "started_server", "url_of_database", "wait_until_stopped"]

_IN_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 * 1024**3
# The log is kept small: it lies in memory too.
_SETTINGS = {"max_wal_size": "512MB"}
_COPIES_FILES = 150_000  # a server older than that knows no other way
_HASHES_AS_OFTEN_AS_IT_IS_TOLD = 160_000
_numbers = count(1)


@contextmanager
def started_server(settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """An embedded server with a folder of its own; both are gone after the block."""
    with open_folder() as parent:
        home = parent / ".penstock"
        server = embedded.start(home, settings={**_SETTINGS, **(settings or {})})
        _hash_password_once(server.url)
        yield server
        server.close()
        wait_until_stopped(home)


def _hash_password_once(url: str) -> None:
    """Tests connect some ten thousand times, and to hash a password 4,096 times costs more than the rest of it."""
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.info.server_version >= _HASHES_AS_OFTEN_AS_IT_IS_TOLD:
            role, password = sql.Identifier(connection.info.user), sql.Literal(connection.info.password)
            connection.execute("set scram_iterations = 1")
            connection.execute(sql.SQL("alter role {} password {}").format(role, password))


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that the account which runs the server for root can enter, unlike pytest's; gone after the block."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-tests-", dir=_roomy_memory()))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_until_stopped(home: Path) -> None:
    """Wait until no server runs there, nor anything that looks after one."""
    with suppress(FileNotFoundError), (home / "supervisor.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)


@contextmanager
def created_database(server_url: str, template: str, owner: str = "penstock", name: str | None = None) -> Iterator[str]:
    """The URL of a copy of the template; whoever is still connected to it at the block's end is cut off."""
    name = name or f"test_{next(_numbers)}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        strategy = "strategy file_copy" if connection.info.server_version >= _COPIES_FILES else ""
        create = sql.SQL("create database {} template {} owner {} " + strategy)
        connection.execute(create.format(sql.Identifier(name), sql.Identifier(template), sql.Identifier(owner)))
    try:
        yield url_of_database(server_url, name)
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def url_of_database(server_url: str, name: str) -> str:
    """The URL of another database of a server."""
    start, _, _ = server_url.rpartition("/")
    return f"{start}/{name}"


class Backup:
    """A copy of a database as it is now, to be put in its place later: as if a backup had been restored.

    Whoever is connected is cut off, by the copying and by the restoring, and finds the copy under the same URL.
    """

    def __init__(self, server_url: str, url: str) -> None:
        self._server_url = server_url
        _, _, name = url.rpartition("/")
        self._name = sql.Identifier(name)
        self._text = name
        self._copy = sql.Identifier(f"{name}_backup")
        with psycopg.connect(server_url, autocommit=True) as connection:
            self._close(connection)
            connection.execute(sql.SQL("create database {} template {}").format(self._copy, self._name))
            self._open(connection)

    def restore(self) -> None:
        """Put the copy in the place of the database, which is gone."""
        with psycopg.connect(self._server_url, autocommit=True) as connection:
            self._close(connection)
            connection.execute(sql.SQL("drop database {} with (force)").format(self._name))
            connection.execute(sql.SQL("alter database {} rename to {}").format(self._copy, self._name))

    def _close(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        connection.execute(sql.SQL("alter database {} allow_connections false").format(self._name))
        while connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [self._text]
        ).fetchall():
            pass

    def _open(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        connection.execute(sql.SQL("alter database {} allow_connections true").format(self._name))


def _roomy_memory() -> Path | None:
    if _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _ROOM_BYTES:
        return _IN_MEMORY
    return None
