"""Acts inside a transaction that is not ours: a psycopg connection or cursor, or a SQLAlchemy session or connection.

Whatever was handed in is reduced to the psycopg connection beneath it; SQLAlchemy is recognised by its shape, so that
it need not be installed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from penstock.errors import InvalidInput
from penstock.storage.connection.error_meaning import schema_mismatch
from penstock.storage.connection.queries import query

__all__ = [
    "async_connection_beneath",
    "callers_session",
    "connection_beneath",
    "is_async",
    "part_of_transaction",
    "part_of_transaction_async",
]

_REMEDY = "pass a psycopg connection or cursor, or a SQLAlchemy session or connection that uses psycopg 3"


def _find_driver_connection(given: Any) -> Any:
    """The driver's connection under whatever was handed in."""
    if isinstance(given, (psycopg.Cursor, psycopg.AsyncCursor)):
        return given.connection
    if hasattr(given, "sync_session"):  # SQLAlchemy's AsyncSession
        given = given.sync_session
    if hasattr(given, "sync_connection") and not isinstance(given, (psycopg.Connection, psycopg.AsyncConnection)):
        given = given.sync_connection  # SQLAlchemy's AsyncConnection
    if hasattr(given, "get_bind") and callable(getattr(given, "connection", None)):  # Session
        given = given.connection()
    inner = getattr(given, "connection", None)
    driver = getattr(inner, "driver_connection", None)
    return given if driver is None else driver


def is_async(given: Any) -> bool:
    """Whether what was handed in can only be used from a coroutine."""
    return (
        isinstance(given, (psycopg.AsyncConnection, psycopg.AsyncCursor))
        or hasattr(given, "sync_session")
        or (hasattr(given, "sync_connection") and not isinstance(given, psycopg.Connection))
    )


def connection_beneath(given: Any) -> psycopg.Connection[Any]:
    """The psycopg connection under it, or InvalidInput."""
    found = _find_driver_connection(given)
    if isinstance(found, psycopg.AsyncConnection):
        raise InvalidInput("connection", "it is asynchronous; use aenqueue, aenqueue_many or asettle with it")
    if not isinstance(found, psycopg.Connection):
        raise InvalidInput("connection", f"{type(given).__name__} is not one Penstock can write through; {_REMEDY}")
    return found


async def async_connection_beneath(given: Any) -> psycopg.AsyncConnection[Any]:
    """The asynchronous psycopg connection under it, or InvalidInput."""
    if hasattr(given, "sync_session"):  # AsyncSession: begins its transaction first
        given = await given.connection()
    found = _find_driver_connection(given)
    if not isinstance(found, psycopg.AsyncConnection):
        raise InvalidInput("connection", f"{type(given).__name__} is not asynchronous; {_REMEDY}")
    return found


@contextmanager
def part_of_transaction(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """All or nothing of the block, as a part of the caller's transaction; its own transaction in autocommit mode."""
    if _is_about_to_begin(connection):
        # The driver begins the caller's transaction with its first statement. Without one the block would be taken
        # for a whole transaction, and committed at its end whatever the caller decides.
        connection.execute(query("begin_callers_transaction"))
    with connection.transaction():
        yield


@asynccontextmanager
async def part_of_transaction_async(connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    """The same on an asynchronous connection."""
    if _is_about_to_begin(connection):
        await connection.execute(query("begin_callers_transaction"))
    async with connection.transaction():
        yield


@contextmanager
def callers_session(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> Iterator[None]:
    """In the block, text that the caller's session cannot carry is an InvalidInput, what it lacks a SchemaMismatch."""
    try:
        yield
    except psycopg.Error as error:
        if (refusal := schema_mismatch(error, "the caller's database")) is not None:
            raise refusal from error
        raise
    except UnicodeEncodeError:
        encoding = connection.info.parameter_status("client_encoding")
        raise InvalidInput(
            "connection", f"its client_encoding, {encoding}, cannot carry all of the text; set client_encoding to UTF8"
        ) from None


def _is_about_to_begin(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return not connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
