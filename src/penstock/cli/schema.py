"""Commands about the database itself: migrate, sql, grant, doctor."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, NamedTuple

import typer

from penstock.admin import grant as grant_to
from penstock.cli.app_target import ensure_answering, open_answering_app, open_app, suppress_warnings
from penstock.cli.shared_options import AsJson, Url
from penstock.cli.terminal import Column, is_terminal, say, show_json, show_table, warn
from penstock.errors import PenstockError
from penstock.storage import Connection
from penstock.storage.connection.schema_name import SCHEMA, checked_schema
from penstock.storage.schema import (
    EMPTY,
    OURS,
    AppliedSchema,
    describe,
    owner_of,
    plan,
    read_state,
    refuse,
    script,
    transaction,
)
from penstock.version import __version__

__all__ = ["doctor", "grant", "migrate", "sql"]

SqlUrl = Annotated[
    str | None,
    typer.Option("--url", help="The database, or several; else $PENSTOCK_URL; where there is none, as --new penstock."),
]
New = Annotated[
    str | None,
    typer.Option("--new", metavar="SCHEMA", help="All that a new schema of this name needs; no database is asked."),
]


def migrate(url: Url = None, as_json: AsJson = False) -> None:
    """Create or upgrade the schema; programs may run meanwhile."""
    with open_app(url) as app:
        ensure_answering(app, creates=True)
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


def sql(url: SqlUrl = None, new: New = None, as_json: AsJson = False) -> None:
    """Print what `migrate` would do, to be reviewed or run by psql."""
    if new is not None and url is not None:
        raise typer.BadParameter("no database is asked for --new; leave --url out")
    if new is not None or (url is None and not os.environ.get("PENSTOCK_URL", "").strip()):
        looked = _Looked([], EMPTY, checked_schema(new or SCHEMA), None)
    else:
        looked = _look(url)
    steps = plan(looked.state, OURS, looked.schema)
    if as_json:
        show_json([{"name": step.name, "sql": transaction(step, looked.schema)} for step in steps])
    elif steps:
        sys.stdout.write(f"{_heading(looked)}\n{script(looked.state, OURS, looked.schema)}")
    else:
        sys.stdout.write(f"-- There is nothing to do in schema {looked.schema} of {', '.join(looked.addresses)}.\n")


class _Looked(NamedTuple):
    """What `sql` goes by: databases that lack the same."""

    addresses: list[str]
    state: AppliedSchema
    schema: str
    owner: str | None


def _look(url: str | None) -> _Looked:
    with open_app(url) as app:
        ensure_answering(app)
        databases = app.unchecked_databases
        states = [database.run(_fitting_state, writes=False) for database in databases]
        owners = {database.run(owner_of, writes=False) for database in databases}
        name = databases[0].schema
        plans = [plan(state, OURS, name) for state in states]
    if any(each != plans[0] for each in plans):
        raise PenstockError("the shards lack different things: name one of them with --url, then the next")
    addresses = [database.address.partition(",")[0] for database in databases]
    return _Looked(addresses, states[0], name, owners.pop() if len(owners) == 1 else None)


def _heading(looked: _Looked) -> str:
    """What whoever runs the script has to know."""
    count = len(looked.addresses)
    where = {0: "a database that has none", 1: f"the database {''.join(looked.addresses)}"}
    on = where.get(count, f"each of these {count} databases: {', '.join(looked.addresses)}")
    role = f"as the role {looked.owner}, which owns the schema" if looked.owner else "as the role that owns the schema"
    lines = [
        f"Penstock {__version__}: what `penstock migrate` does to schema {looked.schema}, to functions {OURS.version}.",
        f"For {on}.",
        f"Run it by psql, {role}{'' if looked.state.has_books else ', or is to own it'}.",
        "Other roles are then let in with `penstock grant`; those that were let in before stay so.",
        "It stops at the first error, with exit status 3. It may be run again: what is done is passed over.",
        "A table that others use is waited for 100 ms only, as they wait meanwhile: after a lock timeout run it again.",
    ]
    return "".join(f"-- {line}\n" for line in lines)


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
        with suppress(PenstockError):  # What keeps an app from opening is among what is looked for.
            ensure_answering(app)
            if notice := app.databases.drained_notice():
                warn(notice)
        checks = app.doctor()
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
