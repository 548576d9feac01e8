"""The command that tells why jobs failed."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.app_target import open_answering_app, unavailable
from penstock.cli.shared_options import AsJson, Url
from penstock.cli.terminal import Column, say, show_json, show_table
from penstock.cli.times import ago
from penstock.model.records import record

__all__ = ["causes"]

BARS = "▁▂▃▄▅▆▇█"


def causes(
    queue: Annotated[str | None, typer.Option("--queue", help="Only dead letters of this queue.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most this many.")] = 20,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show why jobs became dead letters: how many of which cause."""
    with open_answering_app(url) as app:
        found = app.causes(queue, limit=limit)
        missing = unavailable(app)
    if as_json:
        show_json({"causes": record(found), "unavailable": missing})
        return
    if not found:
        say("there are no dead letters")
        return
    columns = [
        Column("cause"),
        Column("dead", "right"),
        Column("first", is_spared=True),
        Column("last"),
        Column("last hour", is_spared=True),
        Column("queue/task", is_cut=True),
        Column("what", is_cut=True),
    ]
    show_table(
        columns,
        [
            [
                each.id,
                f"{each.dead:,}",
                ago(each.first_at),
                ago(each.last_at),
                _bars(each.last_hour),
                f"{each.queue}/{each.task}",
                each.shape,
            ]
            for each in found
        ],
    )


def _bars(counts: list[int]) -> str:
    """Counts as a line of bars, the highest full; nothing where there are none."""
    most = max(counts, default=0)
    return "".join(BARS[-(-7 * count // most)] for count in counts) if most else ""
