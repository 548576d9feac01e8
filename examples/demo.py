"""A live run in a throw-away folder: `make demo`.

Orders are enqueued in bulk and shipped by three worker processes. In the middle one of them is killed with SIGKILL:
the others notice that it is silent, and run what it held. Some jobs fail and are retried, a few fail for good. At the
end everything is counted in the database, and against a journal that the handlers kept themselves.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock import PenstockError

JOBS = int(os.environ.get("PENSTOCK_DEMO_JOBS", "200000"))
JOBS_A_CALL = 2_000
WORKERS = 3
KILLED = 1
KILL_AT = 0.4
REFRESH_SECONDS = 0.25
PLAIN_LINE_SECONDS = 2.0

HERE = Path(__file__).resolve().parent
console = Console(highlight=False)


def main() -> int:
    """Run the demo; 0 where everything adds up."""
    with throw_away_folder() as folder:
        import orders  # here, because an app belongs to the folder it is made in

        with orders.app as app:
            app.migrate()
            with psycopg.connect(app.url, autocommit=True) as database:
                version = database.info.parameter_status("server_version")
                console.print("[bold]Penstock[/bold] · a durable, partitioned job queue on PostgreSQL")
                console.print(f"An embedded PostgreSQL {version} is running in {folder}\n", soft_wrap=True)
                enqueue(orders.ship)
                with Workers(app.url, folder) as workers:
                    drain(database, workers)
                return report(database, folder)


@contextmanager
def throw_away_folder() -> Iterator[Path]:
    """The current folder for as long as the demo lasts."""
    before = Path.cwd()
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    # Root's PostgreSQL runs under another account, which has to pass through here.
    folder.chmod(0o711)
    os.environ.pop("PENSTOCK_URL", None)
    os.chdir(folder)
    try:
        yield folder
    finally:
        os.chdir(before)
        home = folder / ".penstock"
        if (home / "location").exists():
            home = Path((home / "location").read_text().strip())
        if (home / "supervisor.lock").exists():
            # PostgreSQL stops after its last client; then its supervisor lets go of this lock.
            with (home / "supervisor.lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


class Display:
    """Lines that are drawn over and over on a terminal; elsewhere a plain line now and then."""

    def __init__(self) -> None:
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._spoke_at = time.monotonic()

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, title: str, done: int, rate: float, rows: list[Text]) -> None:
        """Draw what is done of all jobs, and a line for each of the rows."""
        if self._live is not None:
            bar = Table.grid(padding=(0, 2))
            share = Text(f"{done:>9,} of {JOBS:,} · {rate:>7,.0f} jobs/s")
            bar.add_row(Text(title, "bold"), ProgressBar(JOBS, done, width=max(10, min(30, console.width - 50))), share)
            self._live.update(Group(bar, *rows), refresh=True)
        elif time.monotonic() - self._spoke_at > PLAIN_LINE_SECONDS or done == JOBS:
            self._spoke_at = time.monotonic()
            console.print(f"{title} {done:,} of {JOBS:,}, {rate:,.0f} jobs/s", soft_wrap=True)

    def say(self, text: str) -> None:
        """A line that stays."""
        console.print(text, soft_wrap=True)


def enqueue(ship: Any) -> None:
    """Write the jobs in calls of two thousand, each of them one durable transaction."""
    started = time.monotonic()
    with Display() as display:
        for first in range(0, JOBS, JOBS_A_CALL):
            rows = [{"order": number} for number in range(first, min(first + JOBS_A_CALL, JOBS))]
            ship.enqueue_many(rows)
            done = first + len(rows)
            display.show("enqueue", done, done / (time.monotonic() - started), [])


class Workers:
    """Real processes, each `penstock work orders:app`; what they log is kept in files."""

    def __init__(self, url: str, folder: Path) -> None:
        environment = os.environ | {"PENSTOCK_URL": url, "ORDERS_JOURNAL": str(folder)}
        self._logs = [folder / f"worker-{number}.log" for number in range(WORKERS)]
        self.processes = []
        for log in self._logs:
            with log.open("wb") as output:
                command = [sys.executable, "-m", "penstock", "work", "orders:app"]
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


def drain(database: psycopg.Connection[Any], workers: Workers) -> None:
    """Watch the workers, and kill one of them in the middle."""
    database.execute(HELD)
    started = time.monotonic()
    seen: list[tuple[float, dict[int, int]]] = []
    done = 0
    with Display() as display:
        while done < JOBS:
            workers.ensure_alive()
            succeeded = counted(database, SUCCEEDED_BY_WORKER)
            now = time.monotonic()
            seen = [*(each for each in seen if now - each[0] < 2.0), (now, succeeded)]
            done = sum(succeeded.values()) + one(database, "select count(*) from penstock.dead")
            if done == JOBS:
                seen.insert(0, (started, {}))  # the last rates shown are those of the whole run
            rows = [worker_row(process, seen, process is workers.killed) for process in workers.processes]
            display.show("  drain", done, sum(rate_of(pid, seen) for pid in succeeded), rows)
            is_at_work = succeeded.get(workers.processes[KILLED].pid, 0) > 0
            if workers.killed is None and is_at_work and done >= KILL_AT * JOBS:
                pid = workers.kill_one()
                held = database.execute(HELD_BY_WORKER, [pid]).rowcount
                display.say(f"[bold red]kill -9 {pid}[/bold red]: it held {held:,} jobs, which the others will rescue")
            if done < JOBS:
                time.sleep(REFRESH_SECONDS)


def worker_row(process: subprocess.Popen[bytes], seen: list[tuple[float, dict[int, int]]], is_killed: bool) -> Text:
    """What one worker has done."""
    line = f" worker {process.pid:<7} {seen[-1][1].get(process.pid, 0):>9,} done · "
    state = "killed" if is_killed else f"{rate_of(process.pid, seen):>7,.0f} jobs/s"
    return Text.assemble(line, (state, "red" if is_killed else "cyan"))


def rate_of(pid: int, seen: list[tuple[float, dict[int, int]]]) -> float:
    """A worker's jobs a second, from the first of these looks to the last."""
    (then, before), (now, after) = seen[0], seen[-1]
    return (after.get(pid, 0) - before.get(pid, 0)) / (now - then) if now > then else 0.0


# The tables behind these are Penstock's own and may change; an application asks app.stats, app.jobs and app.job.

SUCCEEDED_BY_WORKER = """
    select split_part(split_part(worker, ':', 2), '#', 1)::int, sum(cardinality(positions))::int
      from penstock.finished where outcome = 0 group by 1"""

HELD = "create temporary table demo_held (job_id bigint, pid int)"

HELD_BY_WORKER = """
    insert into demo_held
    select range * 1024 + unnest(penstock.positions(low, high, members)), w.pid
      from penstock.lease as l join penstock.worker as w on w.id = l.worker_id where w.pid = %s"""

ENDS = """
    create temporary table demo_end as
        select job_id, worker, outcome = 0 as is_success from penstock.finished_job
        union all select job_id, worker, false from penstock.dead;
    analyze demo_end, demo_held, demo_run"""

STATES = """
    select (select count(*) from penstock.job_stored) as enqueued,
           (select count(distinct job_id) from demo_end where is_success) as succeeded,
           (select count(*) from demo_end where is_success) as successes,
           (select count(*) from penstock.dead) as dead,
           (select sum(opened + scheduled + blocked)::bigint from penstock.depth) as waiting,
           (select count(*) from penstock.failure as f where error not like 'WorkerDied%'
              and not exists (select from penstock.dead as d where (d.job_id, d.attempt) = (f.job_id, f.attempt)))
              as retried,
           (select count(*) from demo_held join demo_end using (job_id) where worker not like '%:' || pid || '#%')
              as rescued"""

RUNS = """
    with run as (select job_id, count(*) as runs from demo_run group by 1),
         ended as (select job_id, count(*) as ends from (
             select job_id from demo_end where is_success
             union all select job_id from penstock.failure where error not like 'WorkerDied%') as e group by 1)
    select count(*) filter (where runs > ends),
           count(*) filter (where runs > ends and held.job_id is null),
           count(*) filter (where runs is null or runs < ends)
      from run full join ended using (job_id) left join demo_held as held using (job_id)"""


def counted(database: psycopg.Connection[Any], statement: LiteralString) -> dict[int, int]:
    """A query's two columns as a dict."""
    return dict(database.execute(statement).fetchall())


def one(database: psycopg.Connection[Any], statement: LiteralString, *parameters: object) -> int:
    """A query's one value."""
    return int(database.execute(statement, parameters).fetchall()[0][0])


def load_journals(database: psycopg.Connection[Any], folder: Path) -> int:
    """Bring what the handlers noted into the database, to be compared there; how many runs it were."""
    runs = array("q")
    for file in folder.glob("*.journal"):
        runs.frombytes(file.read_bytes())
    database.execute("create temporary table demo_run (job_id bigint)")
    with database.cursor().copy("copy demo_run from stdin") as copy:
        copy.write("".join(f"{job_id}\n" for job_id in runs))
    return len(runs)


def report(database: psycopg.Connection[Any], folder: Path) -> int:
    """The figures, and whether they add up."""
    runs = load_journals(database, folder)
    database.execute(ENDS)
    enqueued, succeeded, successes, dead, waiting, retried, rescued = database.execute(STATES).fetchall()[0]
    ran_again, ran_again_elsewhere, not_run = database.execute(RUNS).fetchall()[0]
    lost = enqueued - succeeded - dead - waiting
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(justify="right", style="bold")
    table.add_column()
    table.add_column(style="dim")
    for figure, name, what in (
        (enqueued, "enqueued", "durable before enqueue_many returned"),
        (succeeded, "succeeded", f"each once; handlers were called {runs:,} times"),
        (retried, "retried", "attempts that failed and were tried again"),
        (dead, "dead", "out of attempts: kept as dead letters"),
        (rescued, "rescued", "held by the killed worker, run by the others"),
        (ran_again, "ran twice", "begun by the killed worker, begun again"),
        (lost, "lost", ""),
    ):
        table.add_row(f"{figure:,}", name, what)
    console.print()
    console.print(table)
    checks = {
        f"{JOBS:,} jobs were enqueued": enqueued == JOBS,
        "succeeded + dead = enqueued, and nothing is left waiting": succeeded + dead == enqueued and waiting == 0,
        "no job succeeded twice": successes == succeeded,
        "every end in the database has a run in the handlers' journal": not_run == 0,
        "only jobs that the killed worker held ran twice": ran_again_elsewhere == 0,
    }
    console.print()
    for claim, is_true in checks.items():
        console.print(f"[green]✓[/green] {claim}" if is_true else f"[bold red]✗ not true: {claim}[/bold red]")
    console.print("\nLook next: README.md for the ten lines of code, examples/orders.py for this app,")
    console.print("`.venv/bin/penstock --help` for the commands.")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    # A demo that is ended from outside cleans up as it does after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except PenstockError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
