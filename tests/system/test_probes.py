"""`penstock work` answers probes and scrapes: it is live while its threads turn, and ready while it can claim."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.servers import started_server
from tests.system.cli_runs import CommandLine
from tests.system.facts import eventually
from tests.system.scraped import Scraped, fetch, parse

from penstock import App

TASKS = """
import threading
import time
from pathlib import Path
from penstock import App
from penstock.worker.conductor import Conductor
from penstock.worker.database_worker import DatabaseWorker

app = App(lease=1.5)
queue = app.queue("q")

@queue.task(max_attempts=2, backoff=0)
def do(n: int) -> None:
    if n < 0:
        raise ValueError(n)

@queue.task
def wait(until: str) -> None:
    while not Path(until).exists():
        threading.Event().wait(0.01)

@queue.task(executor="process")
def far() -> None: ...

turn = Conductor.turn

def turn_unless_held(conductor):
    while Path("hold").exists():
        threading.Event().wait(0.01)
    return turn(conductor)

Conductor.turn = turn_unless_held
stuck_seconds = DatabaseWorker._stuck_seconds

def note_still(worker):
    if worker._turned_at is not None and time.monotonic() - worker._turned_at > 2 * app.lease_seconds:
        Path("still").touch()
    return stuck_seconds(worker)

DatabaseWorker._stuck_seconds = note_still
"""


class Worker:
    """A `penstock work` that tells everything on one port."""

    def __init__(self, penstock: CommandLine, *words: str, command: str = "work") -> None:
        (penstock.folder / "tasks.py").write_text(TASKS)
        words = (command, "tasks:app", "--concurrency", "2", *words)
        self.process = subprocess.Popen(
            penstock.command(*words), cwd=penstock.folder, env=penstock.environment, stderr=subprocess.PIPE, text=True
        )
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        told = eventually(lambda: re.findall(r"answers (.+) on port (\d+)", "".join(self.said)), "it answers")
        self.ports = {path: int(port) for paths, port in told for path in paths.split(" and ")}

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.said.append(line)

    def ask(self, path: str) -> tuple[int, str]:
        status, text = fetch(self.ports[path], path)
        return status, text.decode()

    def status(self, path: str) -> int:
        return self.ask(path)[0]

    def scrape(self) -> Scraped:
        return parse(fetch(self.ports["/metrics"], "/metrics")[1])

    def stop(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self._reader.join()
        return "".join(self.said)


@pytest.fixture
def penstock(tmp_path: Path, database_url: str) -> CommandLine:
    return CommandLine(tmp_path, database_url)


@contextmanager
def working(penstock: CommandLine, *words: str, command: str = "work") -> Iterator[Worker]:
    worker = Worker(penstock, *words, command=command)
    try:
        yield worker
    finally:
        said = worker.stop()
        assert "Traceback" not in said, said


def test_a_worker_tells_what_became_of_its_jobs_how_long_they_waited_and_ran(
    penstock: CommandLine, database_url: str
) -> None:
    with working(penstock, "--metrics-port", "127.0.0.1:0") as worker, App(database_url) as app:
        assert worker.ports.keys() == {"/metrics"}
        queue = app.queue("q")
        do, wait, far = (queue.task(name=name)(lambda **_: None) for name in ("do", "wait", "far"))
        eventually(lambda: worker.scrape().value("penstock_worker_ready") == 1, "it has begun")
        assert worker.scrape().value("penstock_worker_slots_used") == 0
        for n in (1, 2, -1):
            do.enqueue(n=n)
        far.enqueue()
        eventually(lambda: worker.scrape().value("penstock_worker_failed_total", queue="q", task="do"), "it failed")
        eventually(lambda: worker.scrape().value("penstock_worker_succeeded_total", queue="q", task="far"), "far ran")
        wait.enqueue(until=str(penstock.folder / "go"))
        eventually(lambda: worker.scrape().value("penstock_worker_slots_used") == 1, "it waits")
        found = worker.scrape()
        for name, value in {"succeeded": 2, "retried": 1, "failed": 1, "discarded": 0, "late_ends": 0}.items():
            assert found.value(f"penstock_worker_{name}_total", queue="q", task="do") == value, name
        for name in ("wait", "run"):
            assert found.value(f"penstock_worker_{name}_seconds_count", queue="q", task="do") == 4
            assert found.value(f"penstock_worker_{name}_seconds_sum", queue="q", task="do") > 0
        assert found.value("penstock_worker_wait_seconds_count", queue="q", task="wait") == 0
        assert (found.value("penstock_worker_slots"), found.value("penstock_worker_processes")) == (2, 1)
        assert found.value("penstock_worker_database_ready", shard="1") == 1
        (penstock.folder / "go").touch()
        eventually(lambda: worker.scrape().value("penstock_worker_succeeded_total", queue="q", task="wait"), "it ended")


def test_a_worker_that_is_told_to_stop_is_live_and_not_ready(penstock: CommandLine, database_url: str) -> None:
    with working(penstock, "--health-port", "127.0.0.1:0") as worker, App(database_url) as app:
        assert worker.ports.keys() == {"/health/live", "/health/ready"}
        eventually(lambda: worker.ask("/health/ready") == (200, "ready\n"), "it is ready")
        app.queue("q").task(name="wait")(lambda until: None).enqueue(until=str(penstock.folder / "go"))
        eventually(lambda: app.stats("q").active_count == 1, "it works")
        worker.process.send_signal(signal.SIGTERM)
        eventually(lambda: worker.ask("/health/ready") == (503, "shard 1: the worker is stopping\n"), "it stops")
        assert worker.ask("/health/live") == (200, "live\n")
        (penstock.folder / "go").touch()


def test_a_worker_whose_conductor_is_stuck_is_not_live_until_it_turns_again(penstock: CommandLine) -> None:
    with working(penstock, "--health-port", "127.0.0.1:0", "--metrics-port", "127.0.0.1:0") as worker:
        eventually(lambda: worker.status("/health/ready") == 200, "it is ready")
        (penstock.folder / "hold").touch()
        eventually(lambda: worker.status("/health/live") == 503, "it is stuck")
        assert re.fullmatch(
            r"the conductor of shard 1 has not turned for \d+ s, longer than the worker's lease, though its database"
            r" answers\n",
            worker.ask("/health/live")[1],
        )
        assert worker.scrape().value("penstock_worker_live") == 0
        (penstock.folder / "hold").unlink()
        eventually(lambda: worker.status("/health/live") == 200, "it turns")


def test_while_postgresql_is_stopped_a_worker_is_live_and_not_ready(tmp_path: Path) -> None:
    with started_server() as server:
        penstock = CommandLine(tmp_path, server.url)
        penstock.done("migrate")
        with working(penstock, "--health-port", "127.0.0.1:0", "--metrics-port", "127.0.0.1:0") as worker:
            eventually(lambda: worker.status("/health/ready") == 200, "it is ready")
            postmaster = int((server.home / "data" / "postmaster.pid").read_text().split()[0])
            supervisor = int(Path(f"/proc/{postmaster}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(supervisor, signal.SIGSTOP)  # Nobody starts it again.
            try:
                os.kill(postmaster, signal.SIGKILL)
                eventually(lambda: worker.status("/health/ready") == 503, "it is not ready")
                eventually(lambda: "worker's lease has run out" in worker.ask("/health/ready")[1], "its lease is over")

                def is_live_still() -> bool:
                    assert worker.ask("/health/live") == (200, "live\n")
                    return (penstock.folder / "still").exists()

                eventually(is_live_still, "it has waited for longer than a conductor may be stuck")
                assert worker.scrape().value("penstock_worker_ready") == 0
                assert worker.scrape().value("penstock_worker_live") == 1
            finally:
                os.kill(supervisor, signal.SIGCONT)
            eventually(lambda: worker.status("/health/ready") == 200, "it is ready again")


def test_penstock_up_answers_too(penstock: CommandLine) -> None:
    with working(penstock, "--health-port", "127.0.0.1:0", "--metrics-port", "127.0.0.1:0", command="up") as worker:
        eventually(lambda: worker.ask("/health/ready") == (200, "ready\n"), "it is ready")
        assert worker.scrape().value("penstock_worker_slots") == 2


def test_ports_that_cannot_be_meant_are_wrong_use(penstock: CommandLine) -> None:
    (penstock.folder / "tasks.py").write_text(TASKS)
    for given in ("x", "70000", "-1", "host:", "1.5", ""):
        assert "--metrics-port" in penstock.wrong("work", "tasks:app", f"--metrics-port={given}")
    assert "without an app" in penstock.wrong("up", "--health-port", "9464")
