"""Working over HTTP: a worker in JavaScript takes 500 jobs a poll and settles them with the next; beside it, in turns,
a native worker with a handler that does nothing. A queue is filled first; either is one process, the server another.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.api_server import serving
from bench.completion import history, rate_between
from bench.processes import processes
from bench.raw_copy import CALL
from bench.run import Run
from bench.server import Server, connect
from bench.workload import ARGUMENTS, QUEUE, TASK, declare

QUESTION = "How many jobs a second does a worker in another language run, against a native one?"

WORKER = Path(__file__).with_suffix(".mjs")


def measure(run: Run) -> None:
    jobs = run.size(100_000, 10_000)
    remote, native = [], []
    for number in run.repeats():
        if number % 2:
            remote.append(work_remotely(run.server, jobs))
        native.append(work_here(run.server, jobs))
        if not number % 2:
            remote.append(work_remotely(run.server, jobs))
    run.compare("a worker in Node, 500 a poll", "jobs/s", remote, "1 native worker", native, at_least=0.15)
    run.note(f"{jobs:,} jobs, enqueued before, on a plain queue")


def work_remotely(server: Server, jobs: int) -> float:
    """Jobs a second that a worker in Node does."""
    with server.database() as url:
        _fill(url, jobs)
        with serving(url) as address:
            subprocess.run(["node", str(WORKER), address, QUEUE, TASK, str(jobs)], check=True)
        return _rate(url, jobs)


def work_here(server: Server, jobs: int) -> float:
    """Jobs a second that a native worker does."""
    with server.database() as url:
        _fill(url, jobs)
        worker = processes.Process(target=_work, args=(url,))
        worker.start()
        worker.join()
        return _rate(url, jobs)


def _fill(url: str, jobs: int) -> None:
    app, task = declare(url)
    with app:
        for low in range(0, jobs, CALL):
            first = low % len(ARGUMENTS)
            task.enqueue_many(ARGUMENTS[first : first + CALL])


def _work(url: str) -> None:
    app, _ = declare(url)
    with app:
        app.work(until_idle=True)


def _rate(url: str, jobs: int) -> float:
    with connect(url) as connection:
        return rate_between(history(connection), jobs // 10, jobs)
