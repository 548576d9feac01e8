"""Other job queues for Python on PostgreSQL, beside Penstock on the same server: bulk enqueue in calls of 1,000, drain
by one worker, and the whole cycle. PgQueuer runs on asyncpg and uvloop with batches of 500, Procrastinate with ten jobs
at a time; otherwise both are as they come, so somebody who knows them well may get more out of them. They are given
fewer jobs, because they take longer, and their clock starts with their first completed job, which is in their favour.

They are installed from the package index, the newest there is, into a virtual environment that is thrown away; one that
cannot be installed is left out, and a line says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.bulk_enqueue import bulk_enqueue
from bench.completion import history, rate_between, wait_for_completed
from bench.cycle import cycle
from bench.processes import running, work
from bench.run import Run
from bench.server import Connection, Server, connect
from bench.workload import ARGUMENTS, calls_of, declare

QUESTION = "How do other queues for Python do on the same server?"

PATIENCE_SECONDS = 300.0
STOP_SECONDS = 30.0


@dataclass(frozen=True)
class Peer:
    """Another queue: what to install, the program that drives it, and how its completed jobs are counted."""

    name: str
    packages: tuple[str, ...]
    program: str
    count: str
    # Far slower ones are given fewer jobs.
    share: int


PGQUEUER = Peer(
    "PgQueuer",
    ("pgqueuer", "asyncpg", "uvloop"),
    "peer_pgqueuer.py",
    "select count(*) from pgqueuer_log where status = 'successful'",
    share=2,
)
PEERS = (
    PGQUEUER,
    Peer(
        "Procrastinate",
        ("procrastinate",),
        "peer_procrastinate.py",
        "select count(*) from procrastinate_jobs where status = 'succeeded'",
        share=20,
    ),
)


@dataclass
class Rates:
    """Jobs a second, a value a repeat."""

    enqueue: list[float] = field(default_factory=list)
    drain: list[float] = field(default_factory=list)
    cycle: list[float] = field(default_factory=list)


def measure(run: Run) -> None:
    jobs = run.size(200_000, 20_000)
    ours = Rates()
    with tempfile.TemporaryDirectory(prefix="penstock-peers-") as folder:
        installed = {peer: python for peer in PEERS if (python := install(run, peer, Path(folder)))}
        theirs = {peer: Rates() for peer in installed}
        for peer in installed:
            run.note(f"{peer.name} is given 1/{peer.share} of Penstock's number of jobs")
        for _ in run.repeats():
            ours.enqueue.append(bulk_enqueue(run.server, jobs)[0])
            ours.drain.append(_drain(run.server, jobs))
            ours.cycle.append(cycle(run.server, jobs, workers=1).rate)
            for peer, python in installed.items():
                _measure_peer(run.server, peer, python, jobs // peer.share // 1_000 * 1_000, theirs[peer])
    for peer, rates in theirs.items():
        for act in ("enqueue", "drain", "cycle"):
            name = {"enqueue": "bulk enqueue", "drain": "drain, 1 worker", "cycle": "whole cycle, 1 worker"}[act]
            run.compare(f"Penstock: {name}", "jobs/s", getattr(ours, act), peer.name, getattr(rates, act))
    if not theirs:
        run.state("Penstock: whole cycle, 1 worker", "jobs/s", ours.cycle)


def _drain(server: Server, jobs: int) -> float:
    calls = calls_of(1_000)
    with server.database() as url, connect(url) as connection:
        app, task = declare(url)
        with app:
            for number in range(jobs // 1_000):
                task.enqueue_many(calls[number % len(calls)])
        with running(work, url) as worker:
            wait_for_completed(connection, jobs, [worker])
        return rate_between(history(connection), jobs // 10, jobs)


def install(run: Run, peer: Peer, folder: Path) -> Path | None:
    """The interpreter that has it."""
    environment = folder / peer.name
    python = environment / "bin" / "python"
    try:
        for command in (
            [sys.executable, "-m", "venv", environment],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    except (subprocess.SubprocessError, OSError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        run.note(f"{peer.name} is left out: it could not be installed ({said[-1] if said else error})")
        run.say(run.report.notes[-1])
        return None
    shown = subprocess.run([python, "-m", "pip", "show", peer.packages[0]], check=True, capture_output=True, text=True)
    version = next(line.partition(": ")[2] for line in shown.stdout.splitlines() if line.startswith("Version"))
    run.note(f"{peer.name} {version}")
    return python


def _measure_peer(server: Server, peer: Peer, python: Path, jobs: int, rates: Rates) -> None:
    program = [str(python), str(Path(__file__).with_name(peer.program))]
    with server.database() as url, connect(url) as connection:
        subprocess.run([*program, url, "set-up", "0"], check=True)
        rates.enqueue.append(jobs / _enqueue(program, url, jobs))
        with _worker(program, url) as worker:
            _wait(connection, peer, jobs // 10, worker)
            began, before = time.perf_counter(), _count(connection, peer)
            _wait(connection, peer, jobs, worker)
            rates.drain.append((jobs - before) / (time.perf_counter() - began))
    with server.database() as url, connect(url) as connection:
        subprocess.run([*program, url, "set-up", "0"], check=True)
        with _worker(program, url) as worker:
            _enqueue(program, url, 1_000)
            _wait(connection, peer, 1_000, worker)
            with _enqueuing(program, url, jobs) as producer:
                # The clock starts with the first job there, as starting the interpreter is not what is measured.
                while _count(connection, peer) == 1_000:
                    time.sleep(0.001)
                began, before = time.perf_counter(), _count(connection, peer)
                _wait(connection, peer, 1_000 + jobs, worker)
                rates.cycle.append((1_000 + jobs - before) / (time.perf_counter() - began))
                producer.wait(STOP_SECONDS)


def _enqueue(program: list[str], url: str, jobs: int) -> float:
    """Seconds it took."""
    with _enqueuing(program, url, jobs) as producer:
        said, _ = producer.communicate(timeout=PATIENCE_SECONDS)
    return float(said)


@contextmanager
def _enqueuing(program: list[str], url: str, jobs: int) -> Iterator[subprocess.Popen[str]]:
    # From a file and not a pipe: nobody has to feed it.
    with tempfile.TemporaryFile("w+") as rows:
        json.dump(ARGUMENTS, rows)
        rows.seek(0)
        command = [*program, url, "enqueue", str(jobs)]
        with started(subprocess.Popen(command, stdin=rows, stdout=subprocess.PIPE, text=True)) as producer:
            yield producer


@contextmanager
def _worker(program: list[str], url: str) -> Iterator[subprocess.Popen[str]]:
    with started(subprocess.Popen([*program, url, "work", "0"], text=True)) as worker:
        yield worker


@contextmanager
def started(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.terminate()
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _count(connection: Connection, peer: Peer) -> int:
    return int(connection.execute(peer.count).fetchone()[0])


def _wait(connection: Connection, peer: Peer, count: int, worker: subprocess.Popen[str]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        asked_at = time.monotonic()
        if _count(connection, peer) >= count:
            return
        if worker.poll() is not None or asked_at > until:
            raise RuntimeError(f"{peer.name}'s worker did not complete {count} jobs; what it said stands above")
        # Counting reads their whole table: it must not become a load of its own.
        time.sleep(max(0.05, 20 * (time.monotonic() - asked_at)))
