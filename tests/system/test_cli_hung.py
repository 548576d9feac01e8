"""G13 at the command line: a worker whose handlers hang ends with a status and a sentence."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from tests.system.cli_runs import CommandLine
from tests.system.facts import eventually

from penstock import App

TASKS = """
import asyncio
import time
from pathlib import Path
from penstock import App

app = App()
queue = app.queue("q")

@queue.task(max_attempts=1, timeout=0.1)
def hang() -> None:
    time.sleep(1e9)

@queue.task(max_attempts=1, timeout=0.1)
async def hang_in_executor() -> None:
    # Python waits for such threads when it exits.
    Path("begun").touch()
    await asyncio.to_thread(time.sleep, 1e9)
"""


@pytest.fixture
def penstock(tmp_path: Path, database_url: str) -> CommandLine:
    return CommandLine(tmp_path, database_url)


def test_g13_a_worker_that_is_stuck_exits_with_75_and_says_why(penstock: CommandLine) -> None:
    (penstock.folder / "hung.py").write_text(TASKS)
    penstock.done("enqueue", "hung:app", "hang_in_executor")
    for _ in range(2):
        penstock.done("enqueue", "hung:app", "hang")
    run = penstock("work", "hung:app", "--concurrency", "1")
    assert run.code == 75, run
    assert "q/hang" in run.err.splitlines()[-1]
    assert "start the process again" in run.err.splitlines()[-1]
    assert "hung.py:12)" in run.err.splitlines()[-1]
    # Where it hung is in the log.
    assert "time.sleep(1e9)" in run.err


def test_g13_a_blocked_loop_is_told_in_a_line_and_where_it_is_in_lines_of_their_own(penstock: CommandLine) -> None:
    (penstock.folder / "hung.py").write_text(
        TASKS + "\n@queue.task(max_attempts=1)\nasync def block() -> None:\n    time.sleep(1e9)\n"
    )
    penstock.done("enqueue", "hung:app", "block")
    run = penstock("work", "hung:app", "--grace", "1")
    assert run.code == 75, run
    lines = run.err.splitlines()
    told = next(number for number, line in enumerate(lines) if line.startswith("error: "))
    assert lines[told].endswith("It is at:")
    assert lines[-1].strip() == "time.sleep(1e9)"


def test_g13_a_worker_that_is_told_to_stop_ends_though_a_thread_of_a_handler_does_not(
    penstock: CommandLine, database_url: str
) -> None:
    (penstock.folder / "hung.py").write_text(TASKS)
    penstock.done("enqueue", "hung:app", "hang_in_executor")
    words = penstock.command("work", "hung:app")
    with subprocess.Popen(words, cwd=penstock.folder, env=penstock.environment, stderr=subprocess.PIPE) as worker:
        eventually((penstock.folder / "begun").exists, "it hangs")
        with App(database_url) as app:
            eventually(lambda: app.stats("q").dead == 1, "its job has timed out")
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate()
    assert worker.returncode == 0, said
    assert b"the process ends without them" in said


def test_the_doctor_names_tasks_of_workers_without_a_timeout(penstock: CommandLine) -> None:
    (penstock.folder / "timed.py").write_text(
        TASKS
        + "\n@queue.task\ndef free() -> None: ...\n\n@queue.task\ndef wait() -> None:\n    Path('begun').touch()\n"
    )
    penstock.done("enqueue", "timed:app", "wait")
    words = penstock.command("work", "timed:app")
    with subprocess.Popen(words, cwd=penstock.folder, env=penstock.environment, stderr=subprocess.PIPE) as worker:
        eventually((penstock.folder / "begun").exists, "it works")
        said = penstock("doctor").out
        worker.send_signal(signal.SIGTERM)
        worker.communicate()
    assert "none for q/free, q/wait" in said
