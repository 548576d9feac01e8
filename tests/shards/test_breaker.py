"""Whether a database answers is learned from the calls that are made anyway, and nobody hangs on one that does not."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.fault.proxy import Proxy

from penstock import embedded
from penstock.errors import PartitionUnavailable
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import ConnectionLost


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    proxy = Proxy(database_url)
    yield proxy
    proxy.close()


@pytest.fixture
def distant(proxy: Proxy) -> Iterator[Database]:
    database = Database(proxy.url)
    database.run(ask)
    yield database
    database.close()


def ask(connection: Connection) -> int:
    row = connection.execute("select 7").fetchone()
    assert row is not None
    return int(row[0])


def becomes(what: Callable[[], bool]) -> None:
    while not what():
        time.sleep(0.02)


def test_a_database_that_went_down_is_not_tried_again_until_it_is_back(proxy: Proxy, distant: Database) -> None:
    proxy.go_down()
    with pytest.raises(PartitionUnavailable, match="does not answer"):
        distant.run(ask, timeout=1.0)
    becomes(lambda: distant.breaker.is_down)
    # Only the probe comes now.
    with pytest.raises(ConnectionLost), distant.connection() as connection:
        connection.execute("select 1")
    proxy.come_up()
    assert distant.run(ask, timeout=60.0) == 7
    assert distant.breaker.health == "up"


def test_who_waits_for_a_silent_server_is_woken(proxy: Proxy, distant: Database) -> None:
    said: list[BaseException] = []

    def wait() -> None:
        try:
            with distant.connection() as connection:
                connection.execute("select 1")
        except psycopg.OperationalError as error:
            said.append(error)

    lasting = distant.connect()
    proxy.stall()
    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join()
    assert said
    assert distant.breaker.is_down
    with pytest.raises(psycopg.OperationalError):
        lasting.execute("select 1")
    proxy.flow()
    assert distant.run(ask, timeout=60.0) == 7


def test_a_slow_statement_does_not_condemn_its_server(distant: Database) -> None:
    seen: list[str] = []
    with distant.connection() as connection:
        started = threading.Thread(target=lambda: connection.execute("select pg_sleep(4)"))
        started.start()
        while started.is_alive():
            seen.append(distant.breaker.health)
            started.join(0.1)
    assert set(seen) == {"up"}


def test_a_cut_connection_does_not_condemn_its_server(proxy: Proxy, distant: Database) -> None:
    proxy.cut_now(lambda _: True)
    assert distant.run(ask) == 7
    assert distant.breaker.health == "up"


def test_a_server_that_takes_no_writes_is_known(database_url: str) -> None:
    database = Database(database_url)
    name = database.run(lambda c: c.info.dbname)
    database.run(lambda c: c.execute(f"alter database {name} set default_transaction_read_only = on"))
    database.close()

    def write(connection: Connection) -> None:
        connection.execute("create table public.mark ()")

    with pytest.raises(PartitionUnavailable, match="is read-only"):
        database.run(write, timeout=1.0)
    becomes(lambda: database.breaker.health == "read-only")
    assert database.run(ask) == 7
    assert not database.breaker.is_writable
    with database.connect() as connection:
        connection.execute("set default_transaction_read_only = off")
        connection.execute(f"alter database {name} set default_transaction_read_only = off")
    becomes(lambda: database.breaker.health == "up")
    database.close()


def test_a_database_may_be_closed_while_a_connection_of_it_is_out(database_url: str) -> None:
    database = Database(database_url)
    with database.connection() as connection:
        database.close()
        assert ask(connection) == 7


def test_a_server_that_takes_connections_and_commits_nothing_is_down() -> None:
    folder = Path(tempfile.mkdtemp(prefix="penstock-tests-"))
    folder.chmod(0o755)
    server = embedded.start(folder / ".penstock")
    database = Database(server.url)
    said: list[BaseException] = []

    def write() -> None:
        try:
            with database.connection() as connection:
                connection.execute("create table public.mark ()")
        except psycopg.OperationalError as error:
            said.append(error)

    try:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("alter system set synchronous_standby_names = 'nobody'")
            connection.execute("select pg_reload_conf()")
            becomes(lambda: connection.execute("show synchronous_standby_names").fetchone() == ("nobody",))
            writing = threading.Thread(target=write)
            writing.start()
            writing.join()
            assert said
            assert database.breaker.is_down
            assert "a commit does not end" in database.breaker.reason
            connection.execute("set synchronous_commit = local")
            connection.execute("alter system reset synchronous_standby_names")
            connection.execute("select pg_reload_conf()")
        assert database.run(ask, timeout=60.0) == 7
    finally:
        database.close()
        server.close()
        with (folder / ".penstock" / "supervisor.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(folder, ignore_errors=True)
