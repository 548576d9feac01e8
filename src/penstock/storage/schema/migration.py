"""Brings a database up to date, step by step; where nothing is missing anybody may ask.

Each step is a transaction, and looks under a lock that all who migrate share whether it is still to be done: two that
migrate at once do each step once, and one that was killed is taken up where it was. A step asks 100 ms for the locks it
needs, as everybody else waits behind it meanwhile, and begins again until it gets them. Functions come last: tables
only grow, so that programs and functions of the version before go on whatever has been done so far.
"""

from __future__ import annotations

import logging

from psycopg import errors
from psycopg.pq import TransactionStatus

from penstock.clock import system
from penstock.errors import InvalidInput, PenstockError
from penstock.storage.connection.database import Connection
from penstock.storage.connection.error_meaning import first_line
from penstock.storage.connection.flow import schema_of
from penstock.storage.connection.queries import query
from penstock.storage.schema.files import OURS, Schema
from penstock.storage.schema.state import check_schema, read_state, refuse, refuse_server
from penstock.storage.schema.steps import BEGIN, SchemaStep, plan

__all__ = ["migrate"]

log = logging.getLogger("penstock")

MOST_PAUSE_SECONDS = 1.0
SAY_SECONDS = 2.0


def migrate(connection: Connection, schema: Schema = OURS) -> list[str]:
    """Bring the schema up to date; the names of what was applied."""
    refuse_server(connection)
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise PenstockError("a migration makes transactions of its own: call it on a connection that is in none")
    state = read_state(connection)
    refuse(state, schema)
    try:
        steps = plan(state, schema, schema_of(connection))
        applied = [step.name for step in steps if _apply_patiently(connection, step, schema)]
    except errors.DuplicateSchema as error:
        problem = str(error.diag.message_primary).removeprefix("schema ")
        raise InvalidInput("schema", f"{problem}; {error.diag.message_hint}") from error
    except errors.InsufficientPrivilege as error:
        remedy = error.diag.message_hint or "migrate as the role that owns it, or is to own it"
        raise PenstockError(
            f"this database role may not create or change the schema ({error.diag.message_primary}): {remedy}"
        ) from error
    except errors.DependentObjectsStillExist as error:
        detail = "; ".join(str(error.diag.message_detail or "").splitlines())
        said = first_line(error) + (f" ({detail})" if detail else "")
        raise PenstockError(
            f"{said}: drop what was built on Penstock's functions and views, migrate again, and make it anew"
        ) from error
    check_schema(connection, schema)
    return applied


def _apply_patiently(connection: Connection, step: SchemaStep, schema: Schema) -> bool:
    """Do a step, however long somebody holds what it needs; false where it was done meanwhile."""
    began_at = said_at = system.monotonic()
    pause = 0.05
    while True:
        try:
            return _apply(connection, step, schema)
        except errors.LockNotAvailable:
            now = system.monotonic()
            if now - said_at >= SAY_SECONDS:
                said_at = now
                log.warning("%s waits for %.0f s now%s", step.name, now - began_at, _holder(connection))
        system.sleep(pause)
        pause = min(pause * 2, MOST_PAUSE_SECONDS)


def _apply(connection: Connection, step: SchemaStep, schema: Schema) -> bool:
    with connection.transaction():
        connection.execute(BEGIN)
        connection.execute(query("lock_migrations"))
        state = read_state(connection)
        refuse(state, schema)
        if step.name not in {each.name for each in plan(state, schema)}:
            return False
        connection.execute(query("refuse_foreign_schema"))
        connection.execute(step.body)
    return True


def _holder(connection: Connection) -> str:
    """Who may be in the way: the transaction that has used our tables for the longest time."""
    row = connection.execute(query("oldest_user_of_tables")).fetchone()
    if row is None:
        return ""
    return f"; process {row[0]} ({row[1] or 'without a name'}) has used Penstock's tables for {row[2]:.0f} s"
