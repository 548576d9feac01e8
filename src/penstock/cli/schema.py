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
from penstock.cli.parameter import AsJson, Url
from penstock.cli.target import asked, ensure_answering, opened, suppress_warnings
from penstock.cli.terminal import Column, is_terminal, say, show_json, show_table
from penstock.errors import PenstockError
from penstock.storage.migrate import MIGRATIONS, PINNED, Migration

__all__ = ["doctor", "grant", "migrate", "sql"]

# What `migrate` does before the first migration; a test sees to it that the two agree.
PREAMBLE = """\
-- The schema of Penstock. Run by psql, it does to a database without it what `penstock migrate` does.
create schema if not exists penstock;
create table if not exists penstock.migration (number int primary key, name text not null,
    checksum text not null, is_breaking boolean not null, applied_at timestamptz not null default now());
"""


def migrate(url: Url = None, as_json: AsJson = False) -> None:
    """Create or upgrade the schema."""
    with asked(url) as app:
        applied = app.migrate()
    newest = f"{MIGRATIONS[-1].number:04} {MIGRATIONS[-1].name}"
    if as_json:
        show_json({"applied": applied, "newest": newest})
        return
    for name in applied:
        say(f"applied {name}")
    say(f"the schema is up to date: {newest}")


def sql(as_json: AsJson = False) -> None:
    """Print the schema's SQL, to be reviewed or run by psql."""
    if as_json:
        show_json(
            [
                {"number": m.number, "name": m.name, "breaking": m.is_breaking, "checksum": m.checksum, "sql": m.text}
                for m in MIGRATIONS
            ]
        )
    else:
        sys.stdout.write(PREAMBLE + "".join(_script(migration) for migration in MIGRATIONS))


def grant(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="worker, producer, reader; none takes all from it.")],
    role: Annotated[str, typer.Argument(metavar="ROLE", help="A role that exists in the database.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Let a database role work, enqueue from SQL, or read."""
    with asked(url) as app:
        for database in app.databases:
            grant_to(database, kind, role)
    if as_json:
        show_json({"role": role, "kind": kind})
    else:
        say(f"role {role!r} may do nothing here" if kind == "none" else f"role {role!r} is a {kind}")


def doctor(url: Url = None, as_json: AsJson = False) -> None:
    """Check what Penstock rests on, on every shard, and say what to do."""
    with opened(url) as app, suppress_warnings():
        if url is None and not os.environ.get("PENSTOCK_URL"):
            app.migrate()  # an embedded server's schema is nobody's duty
        with suppress(PenstockError):  # What keeps an app from opening is among what is looked for.
            ensure_answering(app)
            len(app.databases)
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


def _script(migration: Migration) -> str:
    """A migration as a transaction that records itself."""
    record = f"{migration.number}, '{migration.name}', '{migration.checksum}', {str(migration.is_breaking).lower()}"
    return (
        f"\n-- {migration.number:04} {migration.name}\n\nbegin;\n{PINNED};\n\n{migration.text.strip()}\n\n"
        f"insert into penstock.migration (number, name, checksum, is_breaking)\nvalues ({record});\ncommit;\n"
    )
