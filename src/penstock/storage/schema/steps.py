"""The steps between what a database has and what a program brings, each a transaction: the same for whoever does them
here and for whoever prints them to be run by psql."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from penstock.storage.connection.queries import PLACEHOLDER, fill, query
from penstock.storage.connection.schema_name import SCHEMA
from penstock.storage.schema.files import AROUND, Schema, TableFile
from penstock.storage.schema.state import AppliedSchema

__all__ = ["BEGIN", "SchemaStep", "plan", "script"]

# What functions mean is decided when they are created: by nothing that others may have put into a schema of the path.
# A lock that somebody holds is asked for no longer than this, as others wait behind whoever asks.
BEGIN = query("begin_step")


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """What one transaction does."""

    name: str
    body: sql.Composed


def plan(state: AppliedSchema, schema: Schema, name: str = SCHEMA) -> list[SchemaStep]:
    """What is left to do, in order, in the schema of that name."""
    steps = [] if state.has_books else [SchemaStep("schema", fill("create_books", name))]
    steps += [_table_step(file, name) for file in schema.tables if file.number not in state.tables]
    if state.functions is None or state.functions.version < schema.version:
        steps.append(_function_step(schema, name))
    return steps


def _table_step(file: TableFile, name: str) -> SchemaStep:
    facts = {"number": file.number, "name": file.name, "checksum": file.checksum}
    record = fill("note_table_file", name, **facts)
    return SchemaStep(file.title, sql.SQL("{}\n{};").format(_in_schema(file.text, name), record))


def _function_step(schema: Schema, name: str) -> SchemaStep:
    facts = {"version": schema.version, "oldest_program": schema.oldest_program, "checksum": schema.checksum}
    record = fill("note_function_set", name, **facts)
    guard = fill("refuse_older_functions", name, version=schema.version)
    before, functions, after = (_in_schema(text, name) for text in (AROUND[0], schema.function_text, AROUND[1]))
    body = sql.SQL("{};\n\n{}\n{}\n{};\n\n{}").format(guard, before, functions, record, after)
    return SchemaStep(f"functions {schema.version}", body)


def _in_schema(text: str, name: str) -> sql.SQL:
    return sql.SQL(text.replace(PLACEHOLDER, name))


def script(steps: Sequence[SchemaStep], name: str = SCHEMA) -> str:
    """The steps, to be run by psql."""
    opening = f"begin;\n{BEGIN};\n{query('lock_migrations', name)};"
    return "\n".join(f"-- {step.name}\n\n{opening}\n\n{step.body.as_string(None)}\ncommit;\n" for step in steps)
