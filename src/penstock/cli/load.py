"""Commands about loads: to load a file or a table by Spark, to see how far loads are, to stop one as a whole."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.app_target import open_answering_app, unavailable
from penstock.cli.completers import complete_loads, complete_queues
from penstock.cli.shared_options import AppOption, AsJson, Preview, Reason, Url
from penstock.cli.spark import Master, spark_session, spark_work
from penstock.cli.terminal import Column, say, show_json, show_table
from penstock.cli.times import ago, clock_text
from penstock.model.records import record

__all__ = ["cancel_load", "load", "loads", "pause_load", "resume_load"]

LoadName = Annotated[str, typer.Argument(metavar="NAME", help="The load's name.", autocompletion=complete_loads)]


def load(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Parquet, CSV with a header, JSON lines or ORC; a folder; a table.")
    ],
    queue: Annotated[str, typer.Option("--queue", help="The queue the jobs go to.", autocompletion=complete_queues)],
    task: Annotated[str | None, typer.Option("--task", help="Their task; else a column 'task' names it.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="The column that is their key.")] = None,
    order_by: Annotated[
        list[str] | None, typer.Option("--order-by", help="The column the jobs of a key are ordered by; repeatable.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The load's name; the same name again does nothing.")
    ] = None,
    bad_rows: Annotated[str, typer.Option("--bad-rows", help="'fail', or the folder for rows that are no jobs.")] = (
        "fail"
    ),
    connections: Annotated[int, typer.Option("--connections", help="How many connections write at a time.")] = 4,
    format_: Annotated[
        str | None, typer.Option("--format", help="What FILE is, where its name does not tell: parquet, csv, table ...")
    ] = None,
    schema: Annotated[
        str | None, typer.Option("--schema", help="Its columns and types: 'customer_id string, amount double'.")
    ] = None,
    target: AppOption = None,
    master: Master = "local[*]",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Load a file by Spark: every row a job, all at once and only once."""
    with open_answering_app(url, target) as app, spark_session(master) as spark:
        # Spark is there only with its extra, which the session has just seen to.
        from penstock.spark.loading.input_files import explain_misfits, guess_format, read_file
        from penstock.spark.loading.load import load as load_frame

        frame = read_file(spark, file, format_ or guess_format(file), schema)
        with explain_misfits(file), spark_work(spark, f"loading {file}"):
            done = load_frame(
                frame,
                app,
                queue,
                task,
                key=key,
                order_by=order_by,
                load=name,
                connections=connections,
                bad_rows=bad_rows,
            )
    if as_json:
        show_json(asdict(done))
    elif not done.is_new:
        say(f"load {done.name!r} was loaded {ago(done.published_at)} ({done.rows:,} rows): nothing was loaded again")
    else:
        left_out = f", {done.duplicates:,} of them known by their idempotency key" if done.duplicates else ""
        bad = f"; {done.bad_rows:,} bad rows are in {bad_rows}" if done.bad_rows else ""
        say(f"loaded {done.rows:,} rows into queue {done.queue!r} as {done.name!r}{left_out}{bad}")


def loads(
    limit: Annotated[int, typer.Option("--limit", help="At most so many, the newest first.")] = 20,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List loads and how far their jobs are."""
    with open_answering_app(url) as app:
        found = app.loads(limit=limit)
        missing = unavailable(app)
    if as_json:
        show_json({"loads": record(found), "unavailable": missing})
        return
    if not found:
        say("there are no loads")
        return
    columns = [
        Column("load", is_cut=True),
        Column("queue", is_cut=True),
        Column("state"),
        Column("rows", "right"),
        Column("done", "right"),
        Column("waiting", "right"),
        Column("running", "right", is_spared=True),
        Column("failed", "right"),
        Column("jobs/s", "right", is_spared=True),
        Column("left", "right"),
        Column("published", is_spared=True),
    ]
    rows = [
        [
            each.name,
            each.queue,
            f"{each.state}, queue paused" if each.is_queue_paused and each.state == "running" else each.state,
            f"{each.rows:,}",
            f"{each.done:,}",
            f"{each.waiting:,}",
            f"{each.running:,}",
            f"{each.failed:,}",
            f"{each.rate:,.0f}" if each.rate else "",
            "" if each.eta_seconds is None else clock_text(each.eta_seconds),
            ago(each.published_at),
        ]
        for each in found
    ]
    show_table(columns, rows)


def pause_load(name: LoadName, url: Url = None, as_json: AsJson = False) -> None:
    """Start none of a load's waiting jobs until it is resumed."""
    with open_answering_app(url) as app:
        app.pause_load(name)
    _say_done(name, "is paused", as_json)


def resume_load(name: LoadName, url: Url = None, as_json: AsJson = False) -> None:
    """Let a paused load's jobs come back."""
    with open_answering_app(url) as app:
        app.resume_load(name)
    _say_done(name, "goes on", as_json)


def cancel_load(
    name: LoadName, preview: Preview = False, reason: Reason = None, url: Url = None, as_json: AsJson = False
) -> None:
    """End every job of a load that has not started."""
    with open_answering_app(url) as app:
        why = "cancelled by penstock cancel-load" if reason is None else reason
        ended = app.cancel_load(name, preview=preview, reason=why)
    if as_json:
        show_json({"load": name, "jobs": ended, "preview": preview})
    else:
        say(f"{'would cancel' if preview else 'cancelled'} {ended:,} jobs of load {name!r}")


def _say_done(name: str, what: str, as_json: bool) -> None:
    if as_json:
        show_json({"load": name})
    else:
        say(f"load {name!r} {what}")
