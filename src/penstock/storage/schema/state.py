"""What a database has of the schema, and whether a program fits it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from psycopg import errors

from penstock.errors import InvalidInput, PenstockError, SchemaMismatch
from penstock.storage.connection.addresses import url_of
from penstock.storage.connection.database import Connection
from penstock.storage.connection.flow import schema_of
from penstock.storage.connection.queries import query
from penstock.storage.connection.schema_name import SCHEMA, with_schema
from penstock.storage.schema.files import OURS, Schema

__all__ = [
    "EMPTY",
    "AppliedSchema",
    "FunctionSet",
    "check_schema",
    "describe",
    "owner_of",
    "read_state",
    "refuse",
    "refuse_newer",
    "refuse_server",
]


@dataclass(frozen=True, slots=True)
class FunctionSet:
    """The functions that a database has."""

    version: int
    oldest_program: int
    checksum: str


@dataclass(frozen=True, slots=True)
class AppliedSchema:
    """What was applied to a database: the checksums of table files by number, and the set of functions."""

    # Whether there are tables to note it in.
    has_books: bool
    tables: dict[int, tuple[str, str]]
    functions: FunctionSet | None


EMPTY = AppliedSchema(False, {}, None)


def read_state(connection: Connection) -> AppliedSchema:
    """What this database has."""
    try:
        row = connection.execute(query("find_books")).fetchone()
        if row == (False,):
            return EMPTY
        tables = connection.execute(query("read_table_files")).fetchall()
        functions = connection.execute(query("read_function_set")).fetchone()
    except errors.InsufficientPrivilege:
        raise PenstockError(
            f"the database role {connection.info.user!r} may not use Penstock's tables: let their owner run `penstock"
            f" grant worker {connection.info.user} --url {_shell_url(connection)}`, or reader; a producer has only"
            f" {schema_of(connection)}.enqueue, in SQL"
        ) from None
    return AppliedSchema(
        True,
        {number: (name, checksum) for number, name, checksum in tables},
        None if functions is None else FunctionSet(*functions),
    )


def owner_of(connection: Connection) -> str | None:
    """The database role that owns the schema, where that is there."""
    row = connection.execute(query("schema_owner")).fetchone()
    return None if row is None else str(row[0])


def check_schema(connection: Connection, schema: Schema = OURS) -> None:
    """Refuse a schema that this program does not fit, and say what to do."""
    refuse_server(connection)
    state = read_state(connection)
    if not state.tables:
        raise SchemaMismatch(
            f"database {connection.info.dbname!r} has no schema {schema_of(connection)!r} of Penstock's yet: see that"
            f" both are the ones you mean, then run {_migrate_command(connection)}, or app.migrate()"
        )
    refuse(state, schema)
    lacking = [file.title for file in schema.tables if file.number not in state.tables]
    if state.functions is None or state.functions.version < schema.version:
        lacking.append(f"functions {schema.version}")
    if lacking:
        raise SchemaMismatch(
            f"the database lacks {', '.join(lacking)}: run {_migrate_command(connection)}, or app.migrate(), with this"
            " version of penstock; programs of the version before may go on meanwhile"
        )


def refuse(state: AppliedSchema, schema: Schema = OURS) -> None:
    """Refuse what was applied in another form than the program has it, and functions that are too new for it."""
    for file in schema.tables:
        if file.number in state.tables and state.tables[file.number][1] != file.checksum:
            raise SchemaMismatch(
                f"table file {file.title} was applied in another form than this program has:"
                " use the version of penstock that made this database, or a new database"
            )
    functions = state.functions
    if functions is None:
        return
    if functions.version == schema.version and functions.checksum != schema.checksum:
        raise SchemaMismatch(
            f"the database's functions have the version of this program's, {schema.version}, and are others:"
            " use the version of penstock that made them, or a new database"
        )
    refuse_newer(functions.oldest_program, schema)


def refuse_newer(oldest_program: int, schema: Schema = OURS) -> None:
    """Refuse functions for which this program is too old."""
    if oldest_program > schema.version:
        raise SchemaMismatch(
            f"the database's functions are for programs of version {oldest_program} or later, and this one has version"
            f" {schema.version}: upgrade penstock"
        )


def _migrate_command(connection: Connection) -> str:
    """What migrates the schema that a connection means, by the role that it connects as."""
    return f"`penstock migrate --url {_shell_url(connection, connection.info.user)}`"


def _shell_url(connection: Connection, user: str = "") -> str:
    """The database and the schema that a connection means, as a shell takes them; it never has a password."""
    info = connection.info
    return shlex.quote(with_schema(url_of(info.host, info.port, info.dbname, user), schema_of(connection)))


def describe(state: AppliedSchema, schema: Schema = OURS) -> str:
    """How a database that the program fits stands to it, in one sentence."""
    if state.functions is not None and state.functions.version > schema.version:
        return (
            f"the schema is newer than this program: functions {state.functions.version}, not {schema.version}; they"
            " work with it, and stay as they are"
        )
    return f"the schema is up to date: {schema.tables[-1].title}, functions {schema.version}"


def refuse_server(connection: Connection) -> None:
    """Refuse a server that is too old, a database that cannot hold every text, and a schema named by a word of SQL."""
    if connection.info.server_version < 140_000:
        raise SchemaMismatch(
            f"PostgreSQL {connection.info.server_version // 10_000} is too old: Penstock needs 14 or later"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise InvalidInput(
            "url",
            f"the encoding of database {connection.info.dbname!r} is {encoding}, and Penstock's must be UTF8: make one"
            " with create database … encoding 'UTF8' template template0",
        )
    name = schema_of(connection)
    if name != SCHEMA and connection.execute(query("quote_schema")).fetchone() != (name,):
        raise InvalidInput("schema", f"{name!r} is a word of SQL; give another name")
