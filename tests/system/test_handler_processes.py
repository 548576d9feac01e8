"""Handler processes: what they import, what they hear of their worker, and that they end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.system import in_processes
from tests.system.conftest import MakeApp
from tests.system.facts import eventually

from penstock import App
from penstock.errors import InvalidInput

TASKS = """
    import os, time
    from pathlib import Path
    from penstock import App

    app = App(os.environ["DATABASE"])
    images = app.queue("images")


    @images.task(executor="process", max_attempts=1)
    def square(n: int) -> int:
        return n * n


    @images.task(executor="process", max_attempts=1)
    def hang(path: str) -> None:
        Path(path).write_text(str(os.getpid()))
        time.sleep(600)
"""

one_database = pytest.mark.parametrize("urls", [1], indirect=True)


@pytest.fixture
def program(tmp_path: Path, urls: list[str]) -> Path:
    """A folder with a module of tasks, for scripts that work on one of the databases."""
    (tmp_path / "tasks.py").write_text(textwrap.dedent(TASKS))
    return tmp_path


def start(folder: Path, url: str, script: str) -> subprocess.Popen[str]:
    """Run a script beside the tasks."""
    (folder / "page.py").write_text(textwrap.dedent(script))
    return subprocess.Popen(
        [sys.executable, "page.py"],
        cwd=folder,
        env={**os.environ, "DATABASE": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_there(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@one_database
def test_a_script_without_a_guard_is_not_run_again_by_the_processes_of_its_handlers(
    program: Path, urls: list[str]
) -> None:
    script = """
        from tasks import app, images, square

        jobs = [square.enqueue(n=n) for n in (1, 2, 3)]
        app.work(until_idle=True, concurrency=2)
        print([app.result(job) for job in jobs], app.stats(images).total_enqueued)
        app.close()
    """
    with start(program, urls[0], script) as page:
        output, errors = page.communicate()
    assert (output, page.returncode) == ("[1, 4, 9] 3\n", 0), errors
    assert "Traceback" not in errors


@one_database
def test_a_handler_in_the_main_script_is_found_there_and_what_is_guarded_is_not_done_again(
    program: Path, urls: list[str]
) -> None:
    script = """
        import logging
        from tasks import app, images

        class Odd(Exception):
            pass

        @images.task(executor="process", max_attempts=1)
        def halve(n: int) -> int:
            if n % 2:
                raise Odd(n)
            return n // 2

        if __name__ == "__main__":
            jobs = [halve.enqueue(n=n) for n in (4, 5)]
            app.work(until_idle=True, concurrency=1)
            print(app.result(jobs[0]), app.job(jobs[1]).failures[0].error.partition(chr(10))[0])
            app.close()
    """
    with start(program, urls[0], script) as page:
        output, errors = page.communicate()
    assert (output, page.returncode) == ("2 Odd: 5\n", 0), errors


@one_database
@pytest.mark.parametrize(("call", "named"), [("triple.enqueue(n=3)", "enqueue"), ("app.work()", "app.work(...)")])
def test_what_an_unguarded_main_script_does_is_refused_in_a_process_that_imports_it(
    program: Path, urls: list[str], call: str, named: str
) -> None:
    script = f"""
        from tasks import app, images

        @images.task(executor="process", max_attempts=1)
        def triple(n: int) -> int:
            return 3 * n

        if __name__ == "__main__":
            job = triple.enqueue(n=1)
            app.work(until_idle=True, concurrency=1)
            print(app.stats(images).total_enqueued, app.job(job).failures[0].error.partition(chr(10))[0])
            app.close()
        else:
            {call}
    """
    with start(program, urls[0], script) as page:
        output, errors = page.communicate()
    assert output.startswith(f"1 PenstockError: {named} is called at the top of "), errors
    assert "put the call under if __name__ == '__main__':" in output
    assert "Exception in thread" not in errors


@one_database
def test_a_process_ends_with_its_worker_also_while_a_handler_runs(program: Path, urls: list[str]) -> None:
    script = """
        from tasks import app, hang

        hang.enqueue(path="pid")
        app.work(concurrency=1)
    """
    with start(program, urls[0], script) as page:
        pid = int(eventually(lambda: (program / "pid").exists() and (program / "pid").read_text(), "a handler runs"))
        page.send_signal(signal.SIGKILL)
        eventually(lambda: not is_there(pid), "the handler's process ended")


def test_a_thread_that_outlives_its_handler_takes_nothing_from_the_next_job(app: App) -> None:
    poll = app.queue("polling").task(max_attempts=1, executor="process")(in_processes.leave_polling)
    jobs = [poll.enqueue(n=n) for n in range(200)]

    app.work(until_idle=True, concurrency=1)

    assert [app.result(job) for job in jobs] == list(range(200))


def enqueue_orders(app: App, name: str, orders: list[dict[str, Any]]) -> list[int]:
    """Enqueue by a program that does not know what an order is made of."""

    @app.queue("orders", partitions=1).task(name=name, batch=10)
    def send(items: list[dict[str, Any]]) -> None:
        """Never run here."""

    return app.enqueue_many([send.job(**order) for order in orders])


def test_a_batch_handler_that_raises_leaves_the_error_of_a_job_that_never_reached_it(make_app: MakeApp) -> None:
    jobs = enqueue_orders(make_app(), "send", [{"n": 1}, {"n": "x"}, {"n": 3}])
    app = make_app()
    send = app.queue("orders", partitions=1).task(name="send", batch=10, max_attempts=1, executor="process")
    send(in_processes.raise_for_orders)

    app.work(until_idle=True, concurrency=1)

    errors = [app.job(job).failures[0].error.partition("\n")[0] for job in jobs]
    assert errors[0] == errors[2] == "RuntimeError: all 2 of them"
    assert errors[1].startswith("InvalidInput: ")


def test_a_batch_handler_that_breaks_its_contract_sends_back_only_what_it_was_given(make_app: MakeApp) -> None:
    jobs = enqueue_orders(make_app(), "send", [{"n": 1}, {"n": "x"}, {"n": 3}])
    app = make_app()
    send = app.queue("orders", partitions=1).task(name="send", batch=10, max_attempts=1, executor="process")
    send(in_processes.break_contract_for_orders)

    with pytest.raises(InvalidInput, match="broke its contract"):
        app.work(until_idle=True, concurrency=1)

    assert [app.job(job).state for job in jobs] == ["ready", "failed", "ready"]


@one_database
def test_what_a_process_imports_for_its_handler_does_not_count_as_the_handlers_time(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_import.py").write_text(
        "import time\ntime.sleep(2.5)\ndef double(n: int) -> int: return 2 * n\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import slow_to_import  # type: ignore[import-not-found]

    app = make_app()
    double = app.queue("q").task(executor="process", timeout=2.0, max_attempts=1)(slow_to_import.double)
    job = double.enqueue(n=21)
    app.work(until_idle=True)
    assert app.result(job) == 42
