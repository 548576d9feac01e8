"""Database roles: what the owner lets others do.

    owner     migrates and grants; may do everything
    worker    all that the Python client does: enqueue, work, upkeep, look and repair
    producer  calls the SQL function `penstock.enqueue`, and nothing else
    reader    looks

What each may do with which table and function is told by `penstock.rights` in `schema/functions/95_roles.sql`.
"""

from __future__ import annotations

from psycopg import errors

from penstock.errors import InvalidInput
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = ["KINDS", "grant", "kind_of_role", "owns_tables"]

KINDS = ("worker", "producer", "reader", "none")


def grant(connection: Connection, kind: str, role: str) -> None:
    """Let a role do what its kind may, and nothing else here."""
    try:
        connection.execute(query("grant_to"), {"role": role, "kind": kind})
    except errors.InvalidParameterValue as error:
        _, field, text = str(error.diag.message_primary).split(": ", 2)
        raise InvalidInput(field, text) from None


def kind_of_role(connection: Connection) -> tuple[str, str | None]:
    """The role of this connection, and its kind: owner, worker or reader, or None where it is none of them."""
    row = connection.execute(query("kind_of_role")).fetchone()
    assert row is not None  # noqa: S101
    return row[0], row[1]


def owns_tables(connection: Connection) -> bool:
    """Whether this connection's role may do with the tables what only their owner can."""
    row = connection.execute(query("owns_tables")).fetchone()
    return bool(row and row[0])
