"""The steps between what a database has and what a program brings, each a transaction: the same for whoever does them
here and for whoever prints them to be run by psql."""

from __future__ import annotations

import json
from dataclasses import dataclass

from psycopg import sql

from penstock.storage.connection.queries import PLACEHOLDER, fill, query
from penstock.storage.connection.schema_name import SCHEMA
from penstock.storage.schema.files import AROUND, Schema, TableFile
from penstock.storage.schema.state import AppliedSchema

__all__ = ["BEGIN", "SchemaStep", "plan", "script", "transaction"]

# What functions mean is decided when they are created: by nothing that others may have put into a schema of the path.
# A lock that somebody holds is asked for no longer than this, as others wait behind whoever asks.
BEGIN = query("begin_step")


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """What one transaction does. `is_due` asks a database whether it is still to be done."""

    name: str
    body: sql.Composed
    is_due: sql.Composed


def plan(state: AppliedSchema, schema: Schema, name: str = SCHEMA) -> list[SchemaStep]:
    """What is left to do, in order, in the schema of that name."""
    books = SchemaStep("schema", fill("create_books", name), fill("is_books_step_due", name))
    steps = [] if state.has_books else [books]
    steps += [_table_step(file, name) for file in schema.tables if file.number not in state.tables]
    if state.functions is None or state.functions.version < schema.version:
        steps.append(_function_step(schema, name))
    return steps


def _table_step(file: TableFile, name: str) -> SchemaStep:
    facts = {"number": file.number, "name": file.name, "checksum": file.checksum}
    record = fill("note_table_file", name, **facts)
    body = sql.SQL("{}\n{};").format(_in_schema(file.text, name), record)
    return SchemaStep(file.title, body, fill("is_table_file_due", name, number=file.number))


def _function_step(schema: Schema, name: str) -> SchemaStep:
    facts = {"version": schema.version, "oldest_program": schema.oldest_program, "checksum": schema.checksum}
    record = fill("note_function_set", name, **facts)
    guard = fill("refuse_older_functions", name, version=schema.version)
    before, functions, after = (_in_schema(text, name) for text in (AROUND[0], schema.function_text, AROUND[1]))
    body = sql.SQL("{};\n\n{}\n{}\n{};\n\n{}").format(guard, before, functions, record, after)
    return SchemaStep(f"functions {schema.version}", body, fill("is_function_set_due", name, version=schema.version))


def _in_schema(text: str, name: str) -> sql.SQL:
    return sql.SQL(text.replace(PLACEHOLDER, name))


def transaction(step: SchemaStep, name: str = SCHEMA) -> str:
    """A step as a transaction of its own, with what is refused before it."""
    # The lock of those who migrate is waited for however long it takes: nobody else stands behind that.
    opening = (query("lock_migrations", name), BEGIN, query("refuse_foreign_schema", name))
    return "\n".join(["begin;", *(f"{each};" for each in opening), "", step.body.as_string(None), "commit;\n"])


def script(state: AppliedSchema, schema: Schema, name: str = SCHEMA) -> str:
    """What is left to do, to be run by psql: it stops at the first error, and passes over what was done meanwhile."""
    base = fill(
        "refuse_other_base",
        name,
        checksums=json.dumps({file.number: file.checksum for file in schema.tables}),
        applied=sorted(state.tables),
        version=schema.version,
        checksum=schema.checksum,
    )
    opening = query("begin_script")
    parts = [f"\\set ON_ERROR_STOP on\n\\set QUIET on\n{opening};\n\n{base.as_string(None)};\n"]
    for step in plan(state, schema, name):
        due = f"{step.is_due.as_string(None)} \\gset\n\\if :is_due"
        parts.append(f"-- {step.name}\n\n{due}\n{transaction(step, name)}\\endif\n")
    return "\n".join([*parts, f"\\echo schema {name} is up to date: functions {schema.version}\n"])
