"""The schema's versions: numbered SQL files, applied forward, each in a transaction, each once.

Two that migrate at the same time meet at an advisory lock and the second finds nothing to do. What was applied is
recorded with a checksum: code refuses a schema with a migration it does not know if that one says `breaking: yes`,
and a file that changed after it was applied.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

from psycopg import errors, sql

from penstock.errors import InvalidJob, PenstockError, SchemaMismatch
from penstock.storage.database import Connection

__all__ = ["MIGRATIONS", "PINNED", "Migration", "check_schema", "migrate", "pending"]

# What functions mean is decided when they are created: by nothing that others may have put into a schema of the path.
PINNED = "set local search_path = pg_catalog, pg_temp"
_NAME = re.compile(r"^(\d{4})_(\w+)\.sql$")
_BREAKING = re.compile(r"^-- breaking: (yes|no)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of `migrations/`."""

    number: int
    name: str
    text: str
    is_breaking: bool

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def _load() -> tuple[Migration, ...]:
    found = []
    for file in files(__package__).joinpath("migrations").iterdir():
        if match := _NAME.match(file.name):
            text = file.read_text(encoding="utf-8")
            breaking = _BREAKING.search(text)
            if breaking is None:
                raise ValueError(f"{file.name} does not say whether it is breaking")
            found.append(Migration(int(match[1]), match[2], text, breaking[1] == "yes"))
    return tuple(sorted(found, key=lambda migration: migration.number))


MIGRATIONS = _load()


def migrate(connection: Connection) -> list[str]:
    """Bring the schema up to date; the names of what was applied. Where nothing is missing anybody may ask."""
    _refuse_server(connection)
    if pending(connection):
        try:
            applied = _apply(connection)
        except errors.InsufficientPrivilege as error:
            raise PenstockError(
                f"this database role may not create or change the schema ({error.diag.message_primary}): run"
                " `penstock migrate` as the role that owns it, or is to own it"
            ) from error
    else:
        applied = []
    check_schema(connection)
    return applied


def _apply(connection: Connection) -> list[str]:
    with connection.transaction():
        connection.execute(PINNED)
        connection.execute("select pg_advisory_xact_lock(hashtext('penstock.migrate'))")
        connection.execute("create schema if not exists penstock")
        _refuse_foreign_schema(connection)
        connection.execute(
            "create table if not exists penstock.migration (number int primary key, name text not null,"
            " checksum text not null, is_breaking boolean not null, applied_at timestamptz not null default now())"
        )
    applied = []
    for migration in MIGRATIONS:
        with connection.transaction():
            connection.execute(PINNED)
            connection.execute("select pg_advisory_xact_lock(hashtext('penstock.migrate'))")
            row = connection.execute(
                "insert into penstock.migration (number, name, checksum, is_breaking) values (%s, %s, %s, %s)"
                " on conflict do nothing returning number",
                (migration.number, migration.name, migration.checksum, migration.is_breaking),
            ).fetchone()
            if row is not None:
                connection.execute(sql.SQL(migration.text))
                applied.append(f"{migration.number:04} {migration.name}")
    return applied


def _refuse_foreign_schema(connection: Connection) -> None:
    """Refuse a schema of another role: whoever owns it can change what is made in it."""
    row = connection.execute(
        "select nspowner::regrole::text, pg_has_role(nspowner, 'usage') from pg_namespace where nspname = 'penstock'"
    ).fetchone()
    if row is not None and not row[1]:
        raise PenstockError(
            f"the schema penstock belongs to the database role {row[0]}, who could change what is made in it: run"
            f" `penstock migrate` as {row[0]}, or drop that schema first"
        )


def pending(connection: Connection) -> list[str]:
    """The names of the migrations this database lacks."""
    known = _applied(connection)
    return [f"{m.number:04} {m.name}" for m in MIGRATIONS if m.number not in known]


def check_schema(connection: Connection) -> None:
    """Refuse a schema this code does not fit, and say what to do."""
    _refuse_server(connection)
    applied = _applied(connection)
    if not applied:
        raise SchemaMismatch("the database has no Penstock schema yet: run `penstock migrate`, or app.migrate()")
    lacking = [f"{m.number:04} {m.name}" for m in MIGRATIONS if m.number not in applied]
    if lacking:
        raise SchemaMismatch(
            f"the database lacks {', '.join(lacking)}: run `penstock migrate`, or app.migrate(), once all is stopped"
        )
    newest = MIGRATIONS[-1].number
    for number, (name, _, is_breaking) in applied.items():
        if number > newest and is_breaking:
            raise SchemaMismatch(
                f"the database's schema ({number:04} {name}) is newer than this code ({newest:04}): upgrade penstock"
            )
    for migration in MIGRATIONS:
        if applied[migration.number][1] != migration.checksum:
            raise SchemaMismatch(
                f"migration {migration.number:04} {migration.name} was applied in another form than this code has:"
                " use the version of penstock that made this database, or a new database"
            )


def _refuse_server(connection: Connection) -> None:
    """Refuse a server that is too old, and a database that cannot hold every text."""
    if connection.info.server_version < 140_000:
        raise SchemaMismatch(
            f"PostgreSQL {connection.info.server_version // 10_000} is too old: Penstock needs 14 or later"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise InvalidJob(
            "url",
            f"the encoding of database {connection.info.dbname!r} is {encoding}, and Penstock's must be UTF8: make one"
            " with create database … encoding 'UTF8' template template0",
        )


def _applied(connection: Connection) -> dict[int, tuple[str, str, bool]]:
    try:
        rows = connection.execute("select number, name, checksum, is_breaking from penstock.migration").fetchall()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return {}
    except errors.InsufficientPrivilege:
        raise PenstockError(
            f"the database role {connection.info.user!r} may not use Penstock's tables: let their owner run `penstock"
            f" grant worker {connection.info.user}`, or reader; a producer has only penstock.enqueue, in SQL"
        ) from None
    return {number: (name, checksum, is_breaking) for number, name, checksum, is_breaking in rows}
