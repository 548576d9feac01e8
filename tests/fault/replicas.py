"""A primary and a standby of the test's own, that take turns: the primary is killed, the standby promoted, and a new
standby made in the place of the dead one.

Both are reached by one URL that names both. They are no embedded servers: nobody starts a dead one again.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from tests.servers import open_folder

from penstock.embedded.account import Account, server_account
from penstock.embedded.binaries import Binaries, find_binaries
from penstock.embedded.cluster import DATABASE, ROLE, make_cluster, write_settings

__all__ = ["Replica", "Replicas", "started_replicas"]

PATIENCE_SECONDS = 300.0
# Small, and quick to copy.
_SETTINGS = {"shared_buffers": "32MB", "max_connections": "80", "wal_keep_size": "64MB", "min_wal_size": "32MB"}


class Replica:
    """One of the two servers."""

    def __init__(self, home: Path, binaries: Binaries, account: Account) -> None:
        self.home = home
        self.data = home / "data"
        self._binaries = binaries
        self._account = account
        with closing(socket.socket()) as trial:
            trial.bind(("127.0.0.1", 0))
            self.port = int(trial.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    def initialise(self) -> None:
        make_cluster(self.home, self._binaries, self._account)

    def copy(self, primary: Replica, password: str) -> None:
        """Become a standby of this one, called by its port."""
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(mode=0o700)
        self._account.own(self.data, 0o700)
        source = f"host=127.0.0.1 port={primary.port} user={ROLE} password={password} application_name=s{self.port}"
        options = ["--write-recovery-conf", "--wal-method", "stream", "--checkpoint", "fast", "--no-sync"]
        done = self._account.run(
            [self._binaries.folder / "pg_basebackup", "--pgdata", self.data, "--dbname", source, *options]
        )
        assert done.returncode == 0, done.stdout

    def start(self, url: str) -> None:
        write_settings(self.home, _SETTINGS)
        account = self._account
        with (self.home / "postgresql.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(self._binaries.folder / "postgres", "-D", self.data),
                    *("-c", f"config_file={self.home / 'postgresql.conf'}", "-c", f"port={self.port}"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
                user=account.uid if account.is_other else None,
                group=account.gid if account.is_other else None,
                extra_groups=[] if account.is_other else None,
                start_new_session=True,
            )
        _until(lambda: _answers(url), f"the server on port {self.port} answers")

    def kill(self) -> None:
        """End it as a machine ends that loses its power: all of its processes at once."""
        if self._process is None:
            return
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        watched = []
        for process in [self._process.pid, *map(int, children)]:
            with suppress(ProcessLookupError):
                watched.append(os.pidfd_open(process))
                os.kill(process, signal.SIGKILL)
        for each in watched:
            select.select([each], [], [])
            os.close(each)
        self._process.wait()
        self._process = None


class Replicas:
    """The two, the first of them the primary for now."""

    def __init__(self, parent: Path) -> None:
        account = server_account(parent)
        binaries = find_binaries(account)
        homes = [parent / "one", parent / "two"]
        for home in homes:
            home.mkdir(mode=0o755)
        self.primary, self.standby = (Replica(home, binaries, account) for home in homes)
        self.primary.initialise()
        self._password = (self.primary.home / "password").read_text()
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        # As a user writes it, and for those who look at what is there.
        self.url = f"postgresql://{ROLE}:{self._password}@{hosts}/{DATABASE}"
        self.writable_url = f"{self.url}?target_session_attrs=read-write"

    def start(self) -> None:
        """Let the first be there, alone."""
        self.primary.start(self.url_of(self.primary))

    def url_of(self, replica: Replica) -> str:
        return f"postgresql://{ROLE}:{self._password}@127.0.0.1:{replica.port}/{DATABASE}"

    def execute(self, replica: Replica, statement: LiteralString, parameters: Mapping[str, Any] | None = None) -> Any:
        """What one of the two says; its first value."""
        with psycopg.connect(self.url_of(replica), autocommit=True) as connection:
            cursor = connection.execute(statement, parameters)
            row = cursor.fetchone() if cursor.description else None
        return row and row[0]

    def join(self, *, is_synchronous: bool) -> None:
        """Make the second a standby of the first, which waits for it or does not."""
        self.standby.copy(self.primary, self._password)
        self.standby.start(self.url_of(self.standby))
        names = f"s{self.standby.port}" if is_synchronous else ""
        with psycopg.connect(self.url_of(self.primary), autocommit=True) as connection:
            connection.execute(f"alter system set synchronous_standby_names = '{names}'".encode())
            connection.execute("select pg_reload_conf()")
        wanted = "sync" if is_synchronous else "async"
        _until(
            lambda: (
                self.execute(self.primary, "select sync_state from pg_stat_replication where state = 'streaming'")
                == wanted
            ),
            f"the standby is {wanted}",
        )

    def part(self) -> None:
        """Let the standby hear nothing more of the primary."""
        self.execute(self.standby, "alter system set primary_conninfo = ''")
        self.execute(self.standby, "select pg_reload_conf()")
        _until(
            lambda: self.execute(self.standby, "select not exists (select from pg_stat_wal_receiver)"),
            "the standby receives nothing",
        )

    def fail_over(self) -> None:
        """Kill the primary, and promote the standby: it is the primary then, and there is no standby."""
        self.primary.kill()
        self.primary, self.standby = self.standby, self.primary
        # It was copied from a primary that waited for a standby of its own.
        self.execute(self.primary, "alter system reset synchronous_standby_names")
        self.execute(self.primary, "select pg_reload_conf()")
        assert self.execute(self.primary, "select pg_promote(true, 60)")


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def _until(fact: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not fact():
        assert time.monotonic() < deadline, f"it never came to this: {what}"
        time.sleep(0.02)


@contextmanager
def started_replicas() -> Iterator[Replicas]:
    """Both are gone after the block, with all that they held."""
    with open_folder() as parent:
        replicas = Replicas(parent)
        try:
            replicas.start()
            yield replicas
        finally:
            replicas.primary.kill()
            replicas.standby.kill()
