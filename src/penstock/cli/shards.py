"""Commands about shards: which there are and how they are, and what lives where."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.app_target import open_answering_app
from penstock.cli.help_page import Command, Group
from penstock.cli.keys import show_progress
from penstock.cli.shared_options import AsJson, QueueName, Url
from penstock.cli.terminal import Column, say, show_json, show_table
from penstock.model import Shard
from penstock.model.records import record

__all__ = ["shards"]

shards = typer.Typer(name="shards", cls=Group, invoke_without_command=True)


@shards.callback()
def list_shards(context: typer.Context, url: Url = None, as_json: AsJson = False) -> None:
    """List the shards, and change where partitions live."""
    if context.invoked_subcommand is not None:
        return
    with open_answering_app(url) as app:
        found = app.shards
    if as_json:
        show_json({"shards": record(found)})
        return
    columns = [
        Column("shard", "right"),
        Column("address", is_cut=True),
        Column("health"),
        Column("state"),
        Column("partitions", "right"),
        Column("queued", "right"),
        Column("running", "right"),
    ]
    show_table(columns, [_row(each) for each in found])
    for each in found:
        if each.reason:
            typer.echo(f"shard {each.name}: {each.reason}")


@shards.command(cls=Command)
def add(
    new: Annotated[str, typer.Argument(metavar="URL", help="The database: an empty one, or one that was begun with.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make an empty database a further shard: it gets the schema and the catalogue. Nothing moves there by itself."""
    with open_answering_app(url) as app:
        before = {each.name: each.state for each in app.shards}
        number = app.add_shard(new)
    if as_json:
        show_json({"shard": number})
    elif before.get(str(number)) == "active":
        typer.echo(f"it is shard {number} already")
    else:
        typer.echo(f"shard {number} is in use: new queues are placed there too; see penstock shards move")


@shards.command(cls=Command)
def move(
    queue: QueueName,
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="Its partition, by number or name.")],
    shard: Annotated[str, typer.Argument(metavar="SHARD", help="Where it is to live: the shard's number or URL.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Let a partition live on another shard; again to see how far it is."""
    with open_answering_app(url) as app:
        done = app.move_partition(queue, partition, shard)
    show_progress(done, f"partition {partition} of queue {queue!r} lives there", as_json)


@shards.command(cls=Command)
def drain(
    shard: Annotated[str, typer.Argument(metavar="SHARD", help="The shard's number or URL.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Take everything off a shard; again to see how far it is."""
    with open_answering_app(url) as app:
        done = app.drain_shard(shard)
    if as_json:
        show_json(record(done))
        return
    if done.state == "drained":
        say(f"shard {done.shard} is drained: its database may be taken away, with the history of what ended there")
        return
    say(f"shard {done.shard} is being drained")
    columns = [Column("queue", is_cut=True), Column("left"), Column("count", "right"), Column("why", is_cut=True)]
    show_table(columns, [[each.queue, each.kind, f"{each.count:,}", each.reason] for each in done.rest])


def _row(shard: Shard) -> list[str]:
    is_known = shard.health != "down"
    counts = (shard.partitions, shard.queued, shard.running)
    figures = [f"{count:,}" if is_known else "?" for count in counts]
    return [shard.name, shard.address, shard.health, shard.state, *figures]
