"""The workers of examples/ in JavaScript and in shell, as real processes, killed as their servers are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.server.programs import free_port
from tests.system.facts import eventually

from penstock import App

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NODE = ["node", str(EXAMPLES / "worker.mjs")]
SHELL = ["bash", str(EXAMPLES / "worker.sh")]
KEYS = 12


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        app.queue("greetings")
        app.queue("ordered", partitions=2, order="key")
        app.migrate()
        yield app


@contextmanager
def process(command: list[str], **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process and all that it started, killed when the block is over."""
    started = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        yield started
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def serve(url: str, port: int) -> list[str]:
    return [sys.executable, "-m", "penstock", "serve", "--url", url, "--port", str(port), "--log-level", "error"]


def enqueue(app: App, queue: str, count: int) -> None:
    """Jobs of a task that no app in Python declares: through SQL, as another language would."""
    with psycopg.connect(app.plain_url) as connection:
        for number in range(count):
            key = f"k-{number % KEYS}"
            arguments = Jsonb({"name": f"n-{number}"})
            connection.execute("select penstock.enqueue(%s, 'greet', %s, key => %s)", (queue, arguments, key))


def wait_for_completed(app: App, queue: str, count: int) -> None:
    eventually(lambda: app.stats(queue).total_completed >= count, f"{count} jobs are done")


def is_done(app: App, queue: str) -> bool:
    stats = app.stats(queue)
    return stats.total_completed == stats.total_enqueued > 0


def assert_in_order(app: App, queue: str) -> None:
    """The jobs of a key ended one after the other, each before the next began; each once."""
    by_key = defaultdict(list)
    jobs = app.jobs(queue=queue, limit=10_000)
    for job in sorted(jobs, key=lambda job: job.id):
        assert job.result == f"hello {job.args['name']}"
        by_key[job.key].append(job)
    assert len(by_key) == KEYS
    for of_key in by_key.values():
        for before, after in pairwise(of_key):
            assert before.finished_at is not None
            assert after.started_at is not None
            assert before.finished_at <= after.started_at


@pytest.mark.parametrize("queue", ["greetings", "ordered"])
def test_a_worker_in_javascript_gets_through_kills_of_servers_and_of_itself(
    app: App, database_url: str, queue: str
) -> None:
    port = free_port()
    with ExitStack() as stack:
        server = stack.enter_context(process(serve(database_url, port)))
        environment = {"PENSTOCK_SERVER": f"http://127.0.0.1:{port}"}
        workers = [stack.enter_context(process([*NODE, queue], **environment)) for _ in range(2)]
        for part in range(3):
            enqueue(app, queue, 40)
            wait_for_completed(app, queue, part * 40 + 1)
            server.kill()
            server.wait()
            server = stack.enter_context(process(serve(database_url, port)))
            if part == 1:
                workers[0].kill()
                workers.append(stack.enter_context(process([*NODE, queue], **environment)))
        eventually(lambda: is_done(app, queue), "all jobs are done")
        workers[1].send_signal(signal.SIGTERM)
        eventually(lambda: workers[1].poll() is not None, "told to stop, it ends")
        assert workers[1].returncode == 0
    if queue == "ordered":
        assert_in_order(app, queue)
    assert app.stats(queue).total_completed == 120


@pytest.mark.parametrize("queue", ["greetings", "ordered"])
def test_a_worker_in_shell_gets_through_kills_of_its_server_and_of_itself(
    app: App, database_url: str, queue: str
) -> None:
    port = free_port()
    enqueue(app, queue, 2 * KEYS)
    with ExitStack() as stack:
        server = stack.enter_context(process(serve(database_url, port)))
        environment = {"PENSTOCK_SERVER": f"http://127.0.0.1:{port}"}
        worker = stack.enter_context(process([*SHELL, queue], **environment))
        wait_for_completed(app, queue, 3)
        server.kill()
        server.wait()
        stack.enter_context(process(serve(database_url, port)))
        wait_for_completed(app, queue, 6)
        # With the curl that it waits for.
        os.killpg(worker.pid, signal.SIGKILL)
        stack.enter_context(process([*SHELL, queue], **environment))
        eventually(lambda: is_done(app, queue), "all jobs are done")
    if queue == "ordered":
        assert_in_order(app, queue)
    assert app.stats(queue).total_completed == 2 * KEYS


@pytest.mark.parametrize("command", [NODE, SHELL], ids=["javascript", "shell"])
def test_a_worker_that_was_declared_dead_registers_anew(app: App, database_url: str, command: list[str]) -> None:
    port = free_port()
    with (
        process(serve(database_url, port)),
        process([*command, "greetings"], PENSTOCK_SERVER=f"http://127.0.0.1:{port}"),
    ):
        enqueue(app, "greetings", 1)
        wait_for_completed(app, "greetings", 1)
        with psycopg.connect(app.plain_url) as connection:
            connection.execute("delete from penstock.worker where id in (select worker_id from penstock.remote_worker)")
        enqueue(app, "greetings", 1)
        wait_for_completed(app, "greetings", 2)


@pytest.mark.parametrize("command", [NODE, SHELL])
def test_a_worker_that_is_refused_says_why_and_ends(app: App, database_url: str, command: list[str]) -> None:
    port = free_port()
    with process(serve(database_url, port)):
        environment = os.environ | {"PENSTOCK_SERVER": f"http://127.0.0.1:{port}"}
        ended = subprocess.run([*command, "nothing-of-that-name"], env=environment, capture_output=True, check=False)
    assert ended.returncode == 1
    assert b"queue 'nothing-of-that-name' does not exist" in ended.stderr


def test_a_worker_in_javascript_says_what_it_does_and_when_its_server_is_away(app: App, database_url: str) -> None:
    port = free_port()
    with process(serve(database_url, port)) as server:
        environment = os.environ | {"PENSTOCK_SERVER": f"http://127.0.0.1:{port}"}
        enqueue(app, "greetings", 1)
        with subprocess.Popen(
            [*NODE, "greetings"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as worker:
            try:
                assert worker.stdout is not None
                assert worker.stderr is not None
                (job,) = app.jobs(queue="greetings")
                assert worker.stdout.readline() == f"job {job.id} (greet): succeeded\n"
                server.kill()
                assert next(line for line in worker.stderr if "ECONNREFUSED" in line).startswith("asked again in ")
            finally:
                worker.kill()
