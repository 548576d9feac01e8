"""A live run of the whole pipeline in a throw-away folder: `make demo`.

Events of customers, a few of them much busier than the others, are made as Parquet and loaded by Spark into a queue
that keeps each customer's order and takes many events of a customer in one go. Three worker processes drain it. In the
middle one of them is killed with SIGKILL: the others notice that it is silent, and run what it held. What ended is
archived to Parquet; a report is made of it. At the end everything is counted in the history, and against a journal that
the handlers kept themselves.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

import penstock.spark as ps
from crew import Workers, console, drain
from penstock import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = int(os.environ.get("PENSTOCK_DEMO_EVENTS", "300000"))
CUSTOMERS = 10_000
BAD_EVERY = 2_000
PAGE = Path.cwd() / "penstock-demo-report.html"


def main() -> int:
    """Run the demo; 0 where everything adds up."""
    with throw_away_folder() as folder:
        import customers  # here, because an app belongs to the folder it is made in

        console.print("[bold]Penstock[/bold] · a durable job queue on PostgreSQL, its pipeline on Spark\n")
        with customers.app as app:
            with step("start", "PostgreSQL and Spark") as said:
                app.migrate()
                spark = ps.session("local[2]", spark_sql_shuffle_partitions="4")
                said(f"PostgreSQL {server_version(app)} and Spark {spark.version} are running in {folder}")
            try:
                status = pipeline(spark, app, customers.QUEUE, folder)
            finally:
                spark.stop()
            if sys.stdin.isatty() and console.is_terminal:
                show_dashboard(app)
            return status


def pipeline(spark: SparkSession, app: Any, queue: str, folder: Path) -> int:
    """Events to jobs, jobs to history, history to a lake, and a report on it all."""
    files, lake, bad = (str(folder / name) for name in ("events.parquet", "lake", "bad-rows"))
    with step("events", "as Parquet") as said:
        make_events(spark, files)
        said(f"{EVENTS:,} events of {CUSTOMERS:,} customers as Parquet, some of them no good")
    with step("load", "by Spark") as said:
        events = spark.read.parquet(files)
        loaded = ps.load(
            events, app, queue, "apply_event", key="customer", order_by="number", load="demo", bad_rows=bad
        )
        said(f"{loaded.rows:,} jobs by Spark, visible all at once; {loaded.bad_rows:,} bad rows put aside")
    with Workers(app.url, folder) as workers:
        started = time.monotonic()
        held = drain(app.url, workers, loaded.rows)
        tell("drain", f"{loaded.rows:,} jobs by three workers, one of them killed, {len(held):,} jobs rescued", started)
    with step("archive", "to Parquet") as said:
        archived = ps.archive(spark, app, lake)
        size = f"{archived.files} Parquet files, {archived.bytes / 1e6:.0f} MB"
        said(f"{archived.rows:,} ended jobs to {size}; verified, then dropped from PostgreSQL")
    with step("report", "from the lake") as said:
        made = ps.report(spark, app, lake, PAGE)
        advice = ps.advise(spark, app, queue, lake)
        said(f"{made.figures.ended:,} jobs of history, hot and cold")
    show_figures(made.figures, advice.sentence)
    return check(spark, app, queue, lake, loaded, made.figures, Runs(folder), np.array(held, dtype=np.int64))


@contextmanager
def step(name: str, doing: str) -> Iterator[Any]:
    """A stage of the pipeline: what is being done, then what was done and how long it took."""
    started = time.monotonic()
    words: list[str] = []
    status = console.status(f"{name:<8} {doing}") if console.is_terminal else None
    if status is not None:
        status.start()
    try:
        yield words.append
    finally:
        if status is not None:
            status.stop()
    tell(name, words[-1], started)


def tell(name: str, said: str, started: float) -> None:
    """What was done, and how long it took."""
    console.print(f"[bold]{name:<8}[/bold] {said} [dim]({time.monotonic() - started:.1f} s)[/dim]", soft_wrap=True)


def make_events(spark: SparkSession, files: str) -> None:
    """Write the events, numbered as they happened. A customer's share is the greater the lower its number."""
    from pyspark.sql import functions as f

    customer = f.floor(f.pow(f.rand(7), 2) * CUSTOMERS).cast("int")
    amount = f.when(f.col("id") % BAD_EVERY == 42, f.lit(float("nan"))).otherwise(f.round(f.rand(8) * 100, 2))
    events = spark.range(EVENTS).select(
        f.concat(f.lit("c-"), customer.cast("string")).alias("customer"),
        f.col("id").cast("int").alias("number"),
        amount.alias("amount"),
    )
    events.write.parquet(files)


class Runs:
    """What the handlers noted in their journals, in the order in which they began."""

    def __init__(self, folder: Path) -> None:
        from customers import RUN

        kinds = np.dtype([("job", "i8"), ("customer", "i4"), ("number", "i4"), ("began", "i8")])
        assert kinds.itemsize == RUN.size
        files = [np.frombuffer(file.read_bytes(), kinds) for file in folder.glob("*.journal")]
        runs = np.concatenate(files)
        self.of = runs[np.argsort(runs["began"], kind="stable")]

    @property
    def jobs_run_again(self) -> np.ndarray[Any, Any]:
        """Jobs whose handler was called more than once."""
        ids, times = np.unique(self.of["job"], return_counts=True)
        return ids[times > 1]

    @property
    def are_in_order(self) -> bool:
        """Whether the events of each customer began in their order, and those that ran again did so once more."""
        _, first = np.unique(self.of["job"], return_index=True)
        _, last = np.unique(self.of["job"][::-1], return_index=True)
        return self._is_ascending(first) and self._is_ascending(len(self.of) - 1 - last)

    def _is_ascending(self, which: np.ndarray[Any, Any]) -> bool:
        runs = self.of[np.sort(which)]
        by_customer = runs[np.argsort(runs["customer"], kind="stable")]
        is_same = by_customer["customer"][1:] == by_customer["customer"][:-1]
        return bool((by_customer["number"][1:] > by_customer["number"][:-1])[is_same].all())


def show_figures(figures: Any, advice: str) -> None:
    """The report in short."""
    from penstock.drawing.formatting import as_text, duration, rate
    from penstock.spark.reporting.key_time import STATED_TURN_SECONDS, KeyTime

    hot = figures.keys[0].hottest[0]
    one_by_one = KeyTime(hot.jobs, hot.time.run_seconds, STATED_TURN_SECONDS, False).seconds
    rows = (
        (rate(figures.jobs_a_second), "throughput", f"{figures.ended:,} jobs ended, {figures.succeeded:,} succeeded"),
        (duration(figures.wait.p50), "wait, p50", f"p99 {duration(figures.wait.p99)}: they were all loaded at once"),
        (duration(figures.run.p50), "run, p50", f"p99 {duration(figures.run.p99)}"),
        (f"{figures.retried:,}", "retried", "failed, and ran again before the next of their customer"),
        (f"{figures.failed:,}", "failed", "out of attempts: kept as dead letters"),
        (f"{hot.jobs:,}", "hottest", f"jobs of {hot.key}, in runs: one by one they need {duration(one_by_one)}"),
    )
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(justify="right", style="bold")
    table.add_column()
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*(as_text(cell) for cell in row))
    console.print()
    console.print(table)
    console.print(f"\n{advice}", soft_wrap=True)


def check(
    spark: SparkSession, app: Any, queue: str, lake: str, loaded: Any, figures: Any, runs: Runs, held: Any
) -> int:
    """Whether everything adds up: in the history, and against the handlers' own journal."""
    columns = ["id", "outcome", "failures"]
    ended = ps.history(spark, app, lake, columns=columns).toArrow()
    ids = ended["id"].to_numpy()
    has_failed = ~ended["failures"].is_null().to_numpy(zero_copy_only=False)
    is_run = np.isin(ids, runs.of["job"])
    expected = np.union1d(ids[has_failed], held)
    stats = app.stats(queue)
    waiting = stats.queue_length + stats.active_count + stats.scheduled + stats.blocked
    checks = {
        f"{EVENTS:,} events: each became a job or was put aside": loaded.rows + loaded.bad_rows == EVENTS,
        "every job ended, in success or as a dead letter": figures.succeeded + figures.failed == loaded.rows,
        "nothing is left waiting": waiting == 0,
        "lake and database together hold each job once": len(np.unique(ids)) == len(ids) == loaded.rows,
        "every job has a run in the handlers' journal": bool(is_run.all()),
        "only jobs that failed, or that the killed worker held, ran again": bool(
            np.isin(runs.jobs_run_again, expected).all()
        ),
        "every customer's events ran in their order, those that ran again as well": runs.are_in_order,
    }
    console.print()
    for claim, is_true in checks.items():
        console.print(f"[green]✓[/green] {claim}" if is_true else f"[bold red]✗ not true: {claim}[/bold red]")
    console.print(f"\nThe report: {PAGE.as_uri()}", soft_wrap=True)
    console.print("Look next: README.md for the ten lines of code, examples/customers.py for")
    console.print("this app, `.venv/bin/penstock --help` for the commands.")
    return 0 if all(checks.values()) else 1


def show_dashboard(app: Any) -> None:
    """Where one can look at all of it, for as long as somebody sits here."""
    from penstock.server import Application
    from penstock.server.beside import serving_beside
    from penstock.server.serving import bind_free

    with serving_beside(Application(app, is_local=True), bind_free("127.0.0.1")) as url:
        console.print(f"\n[bold]The dashboard is at {url}/[/bold] until you press Enter.", soft_wrap=True)
        with suppress(EOFError, KeyboardInterrupt):
            input()


def server_version(app: Any) -> str:
    """What PostgreSQL it is."""
    import psycopg

    with psycopg.connect(app.url) as connection:
        return str(connection.info.parameter_status("server_version"))


@contextmanager
def throw_away_folder() -> Iterator[Path]:
    """The current folder for as long as the demo lasts."""
    before = Path.cwd()
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    # Root's PostgreSQL runs under another account, which has to pass through here.
    folder.chmod(0o711)
    for name in ("PENSTOCK_URL", "PENSTOCK_EMBEDDED"):
        os.environ.pop(name, None)
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


if __name__ == "__main__":
    # A demo that is ended from outside cleans up as it does after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except PenstockError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
