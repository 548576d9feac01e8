"""The command that shows who did what."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from penstock.cli.app_target import open_answering_app, unavailable
from penstock.cli.shared_options import AsJson, Url
from penstock.cli.terminal import Column, is_terminal, say, show_json, show_table
from penstock.cli.times import instant, parse_past
from penstock.model import AuditEntry
from penstock.model.records import record

__all__ = ["audit"]


def audit(
    actor: Annotated[str | None, typer.Option("--actor", help="Only what this one did: user@host, or a token.")] = None,
    act: Annotated[str | None, typer.Option("--act", help="Only this act, such as cancel or limit.")] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Only what was done to this job, queue, load, cron, shard or token.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Only from then on: 90s, 15m, 2h, 1d ago, or a time.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most this many.")] = 20,
    before: Annotated[
        str | None, typer.Option("--before", metavar="ID", help="Only entries older than this one.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show who changed what, newest first."""
    from_then = None if since is None else parse_past("since", since)
    with open_answering_app(url) as app:
        found = app.audit(limit, before, actor=actor, act=act, target=target, since=from_then)
        missing = unavailable(app)
    if as_json:
        show_json({"entries": record(found), "unavailable": missing})
        return
    if not found:
        say("nothing like that was done")
        return
    columns = [
        Column("at"),
        Column("who", is_cut=True),
        Column("from", is_spared=True),
        Column("act"),
        Column("on", is_cut=True),
        Column("jobs", "right", is_spared=True),
        Column("outcome"),
        Column("with", is_cut=True, is_spared=True),
    ]
    show_table(columns, [_row(each) for each in found])
    if len(found) == limit and is_terminal():
        say(f"older ones: add --before {found[-1].id}", "dim")


def _row(entry: AuditEntry) -> list[object]:
    where = entry.source if entry.address is None else f"{entry.source} {entry.address}"
    count = "" if entry.count is None else f"{entry.count:,}"
    detail = msgspec.json.encode(entry.detail).decode() if entry.detail else ""
    outcome = entry.outcome or "never told"
    return [instant(entry.at), entry.actor, where, entry.act, entry.target, count, outcome, detail]
