"""The embedded PostgreSQL with real processes: shared, killed, stopped, started again.

Nothing here waits for a time: the end of a supervisor is the release of its lock, the end of a process is its pidfd,
and `start` itself returns when the server accepts connections.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from tests.servers import wait_until_stopped
from tests.system.facts import eventually

from penstock import App, embedded
from penstock.app import connecting
from penstock.embedded import Server
from penstock.embedded import server as embedded_server
from penstock.embedded.server import Launching
from penstock.embedded.supervisor import PATIENCE_SECONDS
from penstock.errors import PartitionUnavailable, PenstockError
from penstock.storage import Connection
from penstock.storage.schema import migrate as migrate_at_once

CLIENT = """
import sys
from pathlib import Path
from penstock.embedded import start
server = start(Path(sys.argv[1]))
print(server.url, flush=True)
sys.stdin.read()
"""


started: weakref.WeakSet[Server] = weakref.WeakSet()


def start(folder: Path, settings: dict[str, str] | None = None) -> Server:
    """Start, and have the hold closed also where the test fails before it does."""
    server = embedded.start(folder, settings=settings)
    started.add(server)
    return server


@pytest.fixture(scope="module")
def made_folder() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture
def folder(made_folder: Path) -> Iterator[Path]:
    """A folder whose data may exist from another test, and whose server does not run."""
    yield made_folder
    for server in list(started):
        server.close()
    wait_until_stopped(made_folder)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that the server's account can reach: pytest's own are closed to all but their owner."""
    parent = Path(tempfile.mkdtemp())
    parent.chmod(0o755)
    try:
        yield parent / ".penstock"
        wait_until_stopped(parent / ".penstock")
    finally:
        shutil.rmtree(parent)


def server_process(home: Path) -> int:
    return int((home / "data" / "postmaster.pid").read_text().splitlines()[0])


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def kill_and_wait(process: int, by: signal.Signals = signal.SIGKILL) -> None:
    watched = os.pidfd_open(process)
    try:
        os.kill(process, by)
        select.select([watched], [], [])
    finally:
        os.close(watched)


@contextmanager
def client_process(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that holds the server until its standard input is closed, and the URL it was given."""
    command = [sys.executable, "-c", CLIENT, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()


def answer(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT 42").fetchone()
        assert row is not None
        return int(row[0])


def test_a_server_starts_answers_and_stops_with_its_last_hold(folder: Path) -> None:
    server = start(folder)
    url = server.url
    assert answer(url) == 42
    server.close()
    wait_until_stopped(folder)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_starting_twice_in_one_process_gives_one_server_that_needs_both_holds_closed(folder: Path) -> None:
    first, second = start(folder), start(folder)
    assert first.url == second.url
    first.close()
    first.close()
    assert answer(second.url) == 42
    second.close()


def test_a_hold_that_is_dropped_without_closing_it_lets_the_server_go(folder: Path) -> None:
    server: Server | None = start(folder)
    assert server is not None
    del server
    wait_until_stopped(folder)
    assert not (folder / "data" / "postmaster.pid").exists()


def test_processes_share_one_server_which_stays_until_the_last_has_gone(folder: Path) -> None:
    with client_process(folder) as (_, first_url):
        server = start(folder)
        assert server.url == first_url
    assert answer(server.url) == 42
    server.close()


def test_the_server_stops_after_its_last_client_was_killed(folder: Path) -> None:
    with client_process(folder) as (client, url):
        assert answer(url) == 42
        client.kill()
    wait_until_stopped(folder)
    assert not (folder / "data" / "postmaster.pid").exists()


def test_a_client_started_while_another_is_killed_finds_a_server(folder: Path) -> None:
    with client_process(folder) as (client, _):
        client.kill()
        server = start(folder)
    assert answer(server.url) == 42
    server.close()


def test_two_processes_may_make_the_folder_at_the_same_moment() -> None:
    with open_folder() as folder:
        command = [sys.executable, "-c", CLIENT, str(folder)]
        both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        urls = {process.stdout.readline().strip() for process in both if process.stdout is not None}
        assert len(urls) == 1
        assert answer(urls.pop()) == 42
        for process in both:
            process.communicate()


def test_threads_that_start_at_once_share_one_server(folder: Path) -> None:
    servers: list[Server] = []
    threads = [threading.Thread(target=lambda: servers.append(start(folder))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({server.url for server in servers}) == 1
    for server in servers:
        server.close()


def test_a_killed_server_comes_back_on_the_same_url_with_its_data(folder: Path) -> None:
    server = start(folder)
    url = server.url
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS kept")
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    # One that computes does not notice by itself that its server is gone, and would keep the next from starting.
    with closing(psycopg.connect(url)) as busy, psycopg.connect(url, autocommit=True) as watching:
        busy.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 1000000000000)")
        running = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%generate_series%' AND pid <> pg_backend_pid()"
        while watching.execute(running).fetchone() is None:
            pass
        kill_and_wait(server_process(folder))
        again = start(folder)
    assert again.url == url
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT number FROM kept").fetchone() == (7,)
    again.close()
    server.close()


def test_a_server_killed_again_and_again_is_started_again_each_time(folder: Path) -> None:
    server = start(folder)
    url = server.url
    for _ in range(3):
        kill_and_wait(server_process(folder))
        start(folder).close()
        assert answer(url) == 42
    server.close()


def test_g13_a_server_that_cannot_start_for_long_comes_back_when_it_can(folder: Path) -> None:
    server = start(folder)
    settings = folder / "postgresql.conf"
    good = settings.read_text()
    # As with a full disk, it ends and cannot be started again for some time.
    settings.write_text(f"{good}\nthere_is_no_such_setting = 1\n")
    kill_and_wait(server_process(folder))
    failing_since = time.monotonic()
    eventually(lambda: time.monotonic() - failing_since > PATIENCE_SECONDS + 2, "longer than a first start may take")
    settings.write_text(good)

    def answers() -> bool:
        with suppress(psycopg.OperationalError):
            return answer(server.url) == 42
        return False

    eventually(answers, "it is back")
    server.close()
    wait_until_stopped(folder)


def test_a_server_that_cannot_start_again_is_given_up_with_its_last_client(folder: Path) -> None:
    with client_process(folder) as (client, _):
        settings = folder / "postgresql.conf"
        good = settings.read_text()
        settings.write_text(f"{good}\nthere_is_no_such_setting = 1\n")
        kill_and_wait(server_process(folder))
        client.kill()
    wait_until_stopped(folder)
    settings.write_text(good)
    server = start(folder)
    assert answer(server.url) == 42
    server.close()


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_a_supervisor_that_was_ended_takes_its_server_along_and_the_next_start_sets_up_both(
    folder: Path, by: signal.Signals
) -> None:
    server = start(folder)
    url = server.url
    old = server_process(folder)
    kill_and_wait(parent_of(old), by)
    again = start(folder)
    assert again.url == url
    assert server_process(folder) != old
    assert answer(url) == 42
    again.close()
    server.close()


def test_a_mark_left_by_a_crash_that_now_names_another_process_does_not_stop_the_server(folder: Path) -> None:
    start(folder).close()
    wait_until_stopped(folder)
    with client_process(folder) as (_, _):
        mark = (folder / "data" / "postmaster.pid").read_text()
    wait_until_stopped(folder)
    # Owned by the server's account, as PostgreSQL ignores what belongs to others.
    owner = (folder / "data").stat()
    account = owner.st_uid if os.geteuid() == 0 else None
    sleeper = subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE, user=account)
    (folder / "data" / "postmaster.pid").write_text("\n".join([str(sleeper.pid), *mark.splitlines()[1:]]) + "\n")
    os.chown(folder / "data" / "postmaster.pid", owner.st_uid, owner.st_gid)
    server = start(folder)
    assert answer(server.url) == 42
    server.close()
    sleeper.communicate()


def test_durability_is_left_as_postgresql_has_it_and_extra_settings_are_taken(folder: Path) -> None:
    server = start(folder, settings={"work_mem": "7MB", "cluster_name": "it's ours"})
    with psycopg.connect(server.url) as connection:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            assert connection.execute("SELECT current_setting(%s)", [name]).fetchone() == ("on",)
        assert connection.execute("SELECT current_setting('work_mem')").fetchone() == ("7MB",)
        assert connection.execute("SELECT current_setting('cluster_name')").fetchone() == ("it's ours",)
        assert connection.execute("SELECT current_setting('timezone')").fetchone() == ("UTC",)
    server.close()


def test_a_setting_that_postgresql_refuses_is_told_in_its_words(folder: Path) -> None:
    with pytest.raises(
        PenstockError, match=r"unrecognized configuration parameter|configuration file .* contains errors"
    ):
        start(folder, settings={"no_such_setting": "1"})
    start(folder).close()


def test_nobody_gets_in_without_the_password_and_only_its_owner_can_read_it(folder: Path) -> None:
    server = start(folder)
    password = (folder / "password").read_text()
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(server.url.replace(password, "guessed"))
    assert stat.S_IMODE((folder / "password").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "data").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "postgresql.log").stat().st_mode) == 0o600
    server.close()


def test_a_path_longer_than_a_socket_may_have_is_no_obstacle() -> None:
    with open_folder() as parent:
        deep = parent.parent / ("deep" * 40) / ".penstock"
        server = start(deep)
        assert answer(server.url) == 42
        server.close()
        wait_until_stopped(deep)


def test_data_of_another_major_version_is_refused_in_one_line(folder: Path) -> None:
    start(folder).close()
    wait_until_stopped(folder)
    version = folder / "data" / "PG_VERSION"
    real = version.read_text()
    version.write_text("13\n")
    try:
        with pytest.raises(PenstockError, match="was made by PostgreSQL 13") as refused:
            start(folder)
        assert "\n" not in str(refused.value)
    finally:
        version.write_text(real)


def test_a_data_folder_that_is_not_whole_is_refused_rather_than_made_anew() -> None:
    with open_folder() as folder:
        (folder / "data").mkdir(parents=True)
        with pytest.raises(PenstockError, match="no whole data folder"):
            start(folder)


def test_a_data_folder_that_was_not_finished_is_made_anew() -> None:
    with open_folder() as folder:
        (folder / "data.draft").mkdir(parents=True)
        (folder / "data.draft" / "half").touch()
        folder.chmod(0o711)
        server = start(folder)
        assert answer(server.url) == 42
        server.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another account")
def test_in_a_closed_folder_of_roots_the_data_lies_elsewhere_and_no_permission_changes(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    before = stat.S_IMODE(tmp_path.stat().st_mode)
    folder = tmp_path / ".penstock"
    server = start(folder)
    try:
        assert answer(server.url) == 42
        assert (folder / "location").read_text().strip() == str(server.home)
        assert server.home.parent == Path("/var/tmp")
        assert tmp_path.name in server.home.name
        again = start(folder)
        assert again.url == server.url
        again.close()
        assert stat.S_IMODE(tmp_path.stat().st_mode) == before
    finally:
        server.close()
        wait_until_stopped(server.home)
        shutil.rmtree(server.home)
    with pytest.raises(PenstockError, match="which is gone"):
        start(folder)


def test_a_folder_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PenstockError, match="cannot use"):
        start(tmp_path / "file" / ".penstock")


@contextmanager
def suspended(home: Path) -> Iterator[int]:
    """The server gets no time from the machine."""
    process = server_process(home)
    os.kill(process, signal.SIGSTOP)
    try:
        yield process
    finally:
        os.kill(process, signal.SIGCONT)


def test_g12_who_finds_a_server_that_runs_and_does_not_answer_is_told_when_its_time_is_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(folder)
    eventually(lambda: answer(server.url) == 42, "it is ready")
    monkeypatch.chdir(folder.parent)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    with suspended(folder) as process, App(request_timeout=1.0) as app:
        work = app.queue("q").task(name="work")(lambda: None)
        # Of its second some is over when it comes to ask.
        told = rf"process {process}, runs, and does not answer within (1|0\.\d+) s"
        for call in (app.queues, work.enqueue, lambda: app.unchecked_databases):
            with pytest.raises(PartitionUnavailable, match=told) as refused:
                call()
            assert refused.value.outcome == "not written"
        # Threads wait for the same at the same time.
        ends: list[BaseException] = []

        def ask() -> None:
            try:
                app.queues()
            except PenstockError as error:
                ends.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert [type(each) for each in ends] == [PartitionUnavailable] * 4


def test_g12_who_comes_while_a_server_does_not_stop_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_server, "STOP_SECONDS", 0.5)
    server = start(folder)
    eventually(lambda: answer(server.url) == 42, "it is ready")
    with suspended(folder):
        server.close()
        clients = folder / "clients.lock"
        eventually(lambda: is_locked(clients), "it is being stopped")
        with pytest.raises(PartitionUnavailable, match="is being stopped, and has not ended"):
            embedded.start(folder, seconds=0.1)


def is_locked(path: Path) -> bool:
    with path.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_g12_making_a_server_and_its_schema_is_not_counted_nor_for_a_thread_that_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    making, migrate, start = threading.Event(), migrate_at_once, embedded.start

    def start_slowly(folder: Path, *, launching: Launching, **options: float) -> Server:
        with launching():
            making.set()
            time.sleep(4.0)
        return start(folder, launching=launching, **options)  # type: ignore[arg-type]

    def migrate_slowly(connection: Connection) -> list[str]:
        time.sleep(4.0)
        return migrate(connection)

    monkeypatch.setattr(embedded, "start", start_slowly)
    monkeypatch.setattr(connecting, "migrate", migrate_slowly)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    with open_folder() as folder:
        monkeypatch.chdir(folder.parent)
        with App(request_timeout=3.0) as app:
            work = app.queue("q").task(name="work")(lambda: None)
            written: list[int] = []
            second = threading.Thread(target=lambda: written.append(work.enqueue()))
            first = threading.Thread(target=lambda: written.extend(asyncio.run(app.aenqueue_many([work.job()]))))
            first.start()
            assert making.wait(60.0)
            second.start()
            first.join()
            second.join()
            assert len(written) == 2
