"""Commands that look at the history by Spark: the report, and advice on a queue's partitions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.app import App
from penstock.cli.app_target import open_answering_app
from penstock.cli.shared_options import AsJson, QueueName, Url
from penstock.cli.spark import Master, spark_session, spark_work
from penstock.cli.terminal import Column, say, show_facts, show_json, show_table, warn
from penstock.cli.times import parse_past
from penstock.spark.data_source.options import checked_lake

__all__ = ["advise", "report"]

BAR_CELLS = 24

LakeOption = Annotated[str | None, typer.Option("--lake", help="The lake that holds archived jobs.")]


def report(
    lake: Annotated[
        str | None, typer.Argument(metavar="[LAKE]", help="The lake that holds archived jobs, where there is one.")
    ] = None,
    out: Annotated[str, typer.Option("--out", help="The page to write.")] = "report.html",
    since: Annotated[
        str | None, typer.Option("--since", help="Leave out what ended before: 7d ago as 7d, or 2030-01-31T09:00Z.")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only jobs of this queue.")] = None,
    master: Master = "local[*]",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Write a page about what ended: throughput, waits, failures, keys."""
    start = None if since is None else parse_past("--since", since)
    if lake is not None:
        checked_lake(lake)
    with open_answering_app(url) as app:
        _check_lake(app, lake)
        from penstock.spark.reporting.report import report as make_report

        with spark_session(master) as spark, spark_work(spark, "reading the history") as tell:
            made = make_report(spark, app, lake, out, since=start, queue=queue, on_progress=tell)
    figures = made.figures
    if as_json:
        show_json({"path": str(made.path), **asdict(figures)})
        return
    from penstock.drawing.formatting import as_text, duration, percent, rate

    if figures.ended:
        a_second = figures.jobs_a_second
        facts = {
            "ended": f"{figures.ended:,} ({percent(figures.succeeded / figures.ended)} succeeded)",
            "throughput": None if a_second is None else rate(a_second),
            "wait": f"p50 {duration(figures.wait.p50)}, p99 {duration(figures.wait.p99)}",
            "run": f"p50 {duration(figures.run.p50)}, p99 {duration(figures.run.p99)}",
            "retried": f"{figures.retried:,}",
            "failed": f"{figures.failed:,}",
            "waiting": f"{figures.waiting.jobs:,}",
        }
        show_facts({name: as_text(said) if said is not None else None for name, said in facts.items()})
    else:
        say("nothing that this report could speak of has ended")
    say(f"the page is {made.path}")


def advise(
    queue: QueueName,
    lake: LakeOption = None,
    out: Annotated[str | None, typer.Option("--out", help="Draw it on this page, too.")] = None,
    master: Master = "local[*]",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Say how many partitions suit a queue's keys, and which needs longest."""
    if lake is not None:
        checked_lake(lake)
    with open_answering_app(url) as app:
        _check_lake(app, lake)
        from penstock.spark.advising.advice_page import SHOWN
        from penstock.spark.advising.advise import advise as find_advice

        with spark_session(master) as spark, spark_work(spark, "reading the keys") as tell:
            found = find_advice(spark, app, queue, lake, out, on_progress=tell)
    if as_json:
        show_json(asdict(found))
        return
    if found.choices:
        top = max(choice.speed_up for choice in found.choices)
        shown = [each for each in found.choices if each.partitions in {*SHOWN, found.best, found.partitions}]
        has_runs = found.run is not None
        columns = [
            Column("partitions", "right"),
            Column("speed-up", "right"),
            *([Column(f"run={found.run}", "right")] if has_runs else []),
            Column("balance", "right"),
            Column("fullest", "right"),
            Column("", is_spared=True),
            Column(""),
        ]
        rows = [
            [
                each.partitions,
                f"{each.speed_up:.2f}",
                *([f"{each.speed_up_in_runs:.2f}"] if has_runs else []),
                f"{each.balance:.2f}",
                f"{each.fullest_jobs:,}",
                "█" * round(BAR_CELLS * each.speed_up / top),
                _said(each.partitions, found.partitions, found.best),
            ]
            for each in shown
        ]
        show_table(columns, rows)
        say()
    say(found.sentence)
    if out is not None:
        say(f"the picture is {out}")


def _check_lake(app: App, lake: str | None) -> None:
    """Say what can be said of the lake before Spark is started, which takes long."""
    from penstock.spark.lake.unread import check_folder, describe_unread

    if lake is not None:
        check_folder(app.databases, lake)
    elif (said := describe_unread(app.databases)) is not None:
        warn(said)


def _said(partitions: int, now: int, best: int | None) -> str:
    words = [word for word, number in (("now", now), ("advised", best)) if number == partitions]
    return ", ".join(words)
