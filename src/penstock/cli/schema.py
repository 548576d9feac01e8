"""Commands about the database itself: migrate, sql, grant, doctor."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.admin import doctor as examine
from penstock.admin import grant as grant_to
from penstock.cli.app_target import ensure_answering, open_answering_app, open_app, suppress_warnings
from penstock.cli.shared_options import AsJson, Url
from penstock.cli.terminal import Column, is_terminal, say, show_json, show_table, warn
from penstock.errors import PenstockError
from penstock.storage import Connection
from penstock.storage.connection.schema_name import SCHEMA
from penstock.storage.schema import EMPTY, OURS, AppliedSchema, describe, plan, read_state, refuse, script

__all__ = ["doctor", "grant", "migrate", "sql"]

SqlUrl = Annotated[
    str | None, typer.Option("--url", help="The database, or several; else $PENSTOCK_URL, else an empty one.")
]


def migrate(url: Url = None, as_json: AsJson = False) -> None:
    """Create or upgrade the schema; programs may run meanwhile."""
    with open_app(url) as app:
        ensure_answering(app)
        applied = app.migrate()
        states = [database.run(read_state, writes=False) for database in app.databases]
    versions = [state.functions.version for state in states if state.functions is not None]
    if as_json:
        show_json({"applied": applied, "tables": OURS.tables[-1].title, "functions": max(versions)})
        return
    for name in applied:
        say(f"applied {name}")
    for sentence in dict.fromkeys(describe(state) for state in states):
        say(sentence)


def sql(url: SqlUrl = None, as_json: AsJson = False) -> None:
    """Print what `migrate` would do, to be reviewed or run by psql."""
    if url is None and not os.environ.get("PENSTOCK_URL"):
        steps, name = plan(EMPTY, OURS), SCHEMA
    else:
        with open_app(url) as app:
            ensure_answering(app)
            found = [
                plan(database.run(_fitting_state, writes=False), OURS, database.schema)
                for database in app.unchecked_databases
            ]
        if any(each != found[0] for each in found):
            raise PenstockError("the shards lack different things: name one of them with --url, then the next")
        steps, name = found[0], app.unchecked_databases[0].schema
    if as_json:
        show_json([{"name": step.name, "sql": step.body.as_string(None)} for step in steps])
    elif steps:
        sys.stdout.write(f"-- What `penstock migrate` does. Run by psql it does the same.\n\n{script(steps, name)}")
    else:
        sys.stdout.write("-- There is nothing to do.\n")


def grant(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="worker, producer, reader; none takes all from it.")],
    role: Annotated[str, typer.Argument(metavar="ROLE", help="A role that exists in the database.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Let a database role work, enqueue from SQL, or read."""
    with open_answering_app(url) as app:
        for database in app.databases:
            grant_to(database, kind, role)
    if as_json:
        show_json({"role": role, "kind": kind})
    else:
        say(f"role {role!r} may do nothing here" if kind == "none" else f"role {role!r} is a {kind}")


def doctor(url: Url = None, as_json: AsJson = False) -> None:
    """Check what Penstock rests on, on every shard, and say what to do."""
    with open_app(url) as app, suppress_warnings():
        if url is None and not os.environ.get("PENSTOCK_URL"):
            app.migrate()  # an embedded server's schema is nobody's duty
        with suppress(PenstockError):  # What keeps an app from opening is among what is looked for.
            ensure_answering(app)
            if notice := app.databases.drained_notice():
                warn(notice)
        checks = examine(app.unchecked_databases)
    if as_json:
        show_json([asdict(check) for check in checks])
    else:
        good, bad = ("✓", "✗") if is_terminal() else ("ok", "bad")
        names = {check.shard for check in checks}
        is_alone = len(names) == 1
        columns = [Column(""), *([] if is_alone else [Column("shard")]), Column("check"), Column("found", is_cut=True)]
        rows = [[good if check.ok else bad, check.shard or "all", check.name, check.found] for check in checks]
        show_table(columns, [[row[0], *row[2:]] for row in rows] if is_alone else rows)
        for check in checks:
            if check.advice:
                where = "" if is_alone or not check.shard else f"shard {check.shard}, "
                say(f"{where}{check.name}: {check.advice}", "" if check.ok else "yellow")
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def _fitting_state(connection: Connection) -> AppliedSchema:
    state = read_state(connection)
    refuse(state)
    return state
