"""Commands about a lake: history goes there, and jobs of it come back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.app_target import open_answering_app
from penstock.cli.shared_options import AppOption, AsJson, Url
from penstock.cli.spark import Master, spark_session, spark_work
from penstock.cli.terminal import Column, say, show_json, show_table
from penstock.spark.data_source.options import checked_lake

__all__ = ["archive", "replay"]

LakeArgument = Annotated[str, typer.Argument(metavar="LAKE", help="A folder, here or wherever Spark can write.")]
Format = Annotated[str, typer.Option("--format", help="parquet, or delta or iceberg where your Spark has it.")]


def archive(
    lake: LakeArgument,
    format: Format = "parquet",  # noqa: A002
    wait: Annotated[
        float, typer.Option("--wait", min=0.0, help="Seconds to wait for open transactions.", show_default=True)
    ] = 30.0,
    reconcile: Annotated[
        bool, typer.Option("--reconcile", help="First give up what only the database or only the lake knows of.")
    ] = False,
    master: Master = "local[*]",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Move what has ended into a lake, verified before it is dropped."""
    checked_lake(lake)
    with open_answering_app(url) as app, spark_session(master) as spark:
        from penstock.spark.lake.archive import archive as put

        with spark_work(spark, "archiving") as tell:
            archived = put(spark, app, lake, format, wait=wait, reconcile=reconcile, on_progress=tell)
    if as_json:
        show_json(asdict(archived))
        return
    if archived.rows:
        size = f"{archived.bytes / 1e6:,.1f} MB" if archived.bytes >= 100_000 else f"{archived.bytes / 1e3:,.1f} kB"
        say(f"archived {archived.rows:,} jobs to {lake}: {size} in {archived.files:,} files, verified")
    else:
        say("nothing has ended since the last archive")
    for table in archived.waits_for:
        say(f"{table} is held by an open transaction; run this again when it has ended", "yellow")


def replay(
    lake: LakeArgument,
    where: Annotated[
        str, typer.Option("--where", help="Which jobs: SQL over the columns of history, as outcome = 'failed'.")
    ],
    load: Annotated[str, typer.Option("--load", help="The name of the load they become.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    format: Format = "parquet",  # noqa: A002
    target: AppOption = None,
    master: Master = "local[*]",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue jobs of the past again, as a load."""
    checked_lake(lake)
    with open_answering_app(url, target) as app, spark_session(master) as spark:
        from penstock.spark.lake.replay import replay as again

        with spark_work(spark, "reading the history") as tell:
            replayed = again(spark, app, lake, where, load, dry_run=dry_run, format=format, on_progress=tell)
    if as_json:
        show_json(asdict(replayed))
        return
    columns = [Column("queue", is_cut=True), Column("task", is_cut=True), Column("jobs", "right")]
    if replayed.chosen:
        show_table(columns, [[each.queue, each.task, f"{each.jobs:,}"] for each in replayed.chosen])
    if dry_run:
        say(f"{replayed.jobs:,} jobs would be enqueued again")
    for each in replayed.loads:
        did = "enqueued" if each.is_new else "had been enqueued before:"
        say(f"load {each.name}: {did} {each.rows:,} jobs on {each.queue}")
    if not replayed.chosen:
        say("no job of the past is like that")
