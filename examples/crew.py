"""Worker processes of the demo, and a display of what they do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

__all__ = ["Workers", "console", "drain"]

WORKERS = 3
KILLED = 1
KILL_AT = 0.35
REFRESH_SECONDS = 0.25
PLAIN_LINE_SECONDS = 2.0

HERE = Path(__file__).resolve().parent
console = Console(highlight=False)

# The tables behind these are Penstock's own and may change; an application asks app.stats, app.jobs and app.job.

SUCCEEDED_BY_WORKER = """
    select split_part(split_part(worker, ':', 2), '#', 1)::int, sum(cardinality(positions))::int
      from penstock.finished where outcome = 0 group by 1"""

HELD_BY_WORKER = """
    select range * 1024 + unnest(penstock.positions(low, high, members))
      from penstock.lease as l join penstock.worker as w on w.id = l.worker_id where w.pid = %s"""


class Workers:
    """Real processes, each `penstock work customers:app`; what they log is kept in files."""

    def __init__(self, url: str, folder: Path) -> None:
        environment = os.environ | {"PENSTOCK_URL": url, "DEMO_JOURNAL": str(folder)}
        self._logs = [folder / f"worker-{number}.log" for number in range(WORKERS)]
        self.processes = []
        for log in self._logs:
            with log.open("wb") as output:
                command = [sys.executable, "-m", "penstock", "work", "customers:app"]
                self.processes.append(subprocess.Popen(command, cwd=HERE, env=environment, stderr=output))
        self.killed: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()

    def kill_one(self) -> int:
        """SIGKILL: no handler runs, nothing is handed back. Its process id."""
        self.killed = self.processes[KILLED]
        self.killed.kill()
        self.killed.wait()
        return self.killed.pid

    def ensure_alive(self) -> None:
        """Nobody but the one we killed may be gone."""
        for process, log in zip(self.processes, self._logs, strict=True):
            if process is not self.killed and process.poll() is not None:
                raise SystemExit(f"worker {process.pid} ended by itself:\n{log.read_text()}")


class Display:
    """Lines that are drawn over and over on a terminal; elsewhere a plain line now and then."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._spoke_at = time.monotonic()

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, done: int, rate: float, rows: list[Text]) -> None:
        """Draw what is done of all jobs, and a line for each of the rows."""
        if self._live is not None:
            bar = Table.grid(padding=(0, 2))
            share = Text(f"{done:>9,} of {self._jobs:,} · {rate:>7,.0f} jobs/s")
            room = max(10, min(30, console.width - 50))
            bar.add_row(Text("drain  ", "bold"), ProgressBar(self._jobs, done, width=room), share)
            self._live.update(Group(bar, *rows), refresh=True)
        elif time.monotonic() - self._spoke_at > PLAIN_LINE_SECONDS or done == self._jobs:
            self._spoke_at = time.monotonic()
            console.print(f"drain    {done:,} of {self._jobs:,}, {rate:,.0f} jobs/s", soft_wrap=True)


def drain(url: str, workers: Workers, jobs: int) -> list[int]:
    """Watch the workers, and kill one of them in the middle; the jobs it held."""
    seen: list[tuple[float, dict[int, int]]] = []
    held: list[int] = []
    started = time.monotonic()
    done = 0
    with psycopg.connect(url, autocommit=True) as database, Display(jobs) as display:
        while done < jobs:
            workers.ensure_alive()
            succeeded = dict(_rows(database, SUCCEEDED_BY_WORKER))
            now = time.monotonic()
            seen = [*(each for each in seen if now - each[0] < 2.0), (now, succeeded)]
            done = sum(succeeded.values()) + int(_rows(database, "select count(*) from penstock.dead")[0][0])
            if done == jobs:
                seen.insert(0, (started, {}))  # the last rates shown are those of the whole run
            rows = [_worker_row(process, seen, process is workers.killed) for process in workers.processes]
            display.show(done, sum(_rate_of(pid, seen) for pid in succeeded), rows)
            is_at_work = succeeded.get(workers.processes[KILLED].pid, 0) > 0
            if workers.killed is None and is_at_work and done >= KILL_AT * jobs:
                pid = workers.kill_one()
                held = [job_id for (job_id,) in _rows(database, HELD_BY_WORKER, pid)]
                said = f"[bold red]kill -9 {pid}[/bold red]: it held {len(held):,} jobs, which the others will rescue"
                console.print(said, soft_wrap=True)
            if done < jobs:
                time.sleep(REFRESH_SECONDS)
    return held


def _rows(database: psycopg.Connection[Any], statement: LiteralString, *parameters: object) -> list[tuple[Any, ...]]:
    return database.execute(statement, parameters).fetchall()


def _worker_row(process: subprocess.Popen[bytes], seen: list[tuple[float, dict[int, int]]], is_killed: bool) -> Text:
    """What one worker has done."""
    line = f" worker {process.pid:<7} {seen[-1][1].get(process.pid, 0):>9,} done · "
    state = "killed" if is_killed else f"{_rate_of(process.pid, seen):>7,.0f} jobs/s"
    return Text.assemble(line, (state, "red" if is_killed else "cyan"))


def _rate_of(pid: int, seen: list[tuple[float, dict[int, int]]]) -> float:
    """A worker's jobs a second, from the first of these looks to the last."""
    (then, before), (now, after) = seen[0], seen[-1]
    return (after.get(pid, 0) - before.get(pid, 0)) / (now - then) if now > then else 0.0
