"""Acts inside a transaction that is not ours.

Whatever was handed in is reduced to the connection of a driver beneath it: one of psycopg, or of asyncpg, which is
always asynchronous. SQLAlchemy and Django are recognised by their shape, so that neither need be installed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow, tuple_row
from psycopg.types.datetime import TimestamptzLoader

from penstock.errors import InvalidInput
from penstock.storage.connection.asyncpg_connection import asyncpg_part_of_transaction, fetch_by_asyncpg, find_asyncpg
from penstock.storage.connection.error_meaning import refusal
from penstock.storage.connection.queries import query

__all__ = [
    "async_connection_beneath",
    "callers_cursor",
    "callers_session",
    "connection_beneath",
    "fetch_async",
    "is_async",
    "part_of_transaction",
    "part_of_transaction_async",
]

_REMEDY = (
    "pass a connection or cursor of psycopg 3, a connection of asyncpg, a session or connection of SQLAlchemy that uses"
    " either, or Django's connection over psycopg 3"
)


def _find_driver_connection(given: Any) -> Any:
    """The driver's connection under whatever was handed in; that itself where there is none."""
    if hasattr(given, "sync_session"):  # SQLAlchemy's AsyncSession
        given = given.sync_session
    if hasattr(given, "sync_connection") and not _is_drivers(given):  # SQLAlchemy's AsyncConnection
        given = given.sync_connection
    if hasattr(given, "get_bind") and callable(getattr(given, "connection", None)):  # Session
        given = given.connection()
    if _is_djangos(given):
        given.ensure_connection()
    if _is_drivers(given):
        return given
    inner = getattr(given, "connection", None)  # of a cursor, of Django, or SQLAlchemy's
    driver = getattr(inner, "driver_connection", inner)
    return given if driver is None else driver


def _is_drivers(given: Any) -> bool:
    return isinstance(given, (psycopg.Connection, psycopg.AsyncConnection)) or find_asyncpg(given) is not None


def _is_djangos(given: Any) -> bool:
    return hasattr(given, "ensure_connection") and hasattr(given, "vendor")


def is_async(given: Any) -> bool:
    """Whether what was handed in to a coroutine can only be used there; InvalidInput where it cannot be at all."""
    if _is_djangos(given):
        # In another thread django.db.connection is another connection, outside of the caller's transaction.
        raise InvalidInput(
            "connection",
            "Django's belongs to the thread that opened it: call enqueue or settle there, by sync_to_async",
        )
    return (
        isinstance(given, (psycopg.AsyncConnection, psycopg.AsyncCursor))
        or hasattr(given, "sync_session")
        or (hasattr(given, "sync_connection") and not isinstance(given, psycopg.Connection))
        or find_asyncpg(given) is not None
    )


def connection_beneath(given: Any) -> psycopg.Connection[Any]:
    """The psycopg connection under it, in a transaction or about to begin one; or InvalidInput."""
    found = _find_driver_connection(given)
    if isinstance(found, psycopg.AsyncConnection) or find_asyncpg(found) is not None:
        raise InvalidInput("connection", "it is asynchronous; use aenqueue, aenqueue_many or asettle with it")
    if not isinstance(found, psycopg.Connection):
        raise InvalidInput("connection", f"{_name(given, found)} is not one Penstock can write through; {_REMEDY}")
    _refuse_autocommit(given, found)
    return found


async def async_connection_beneath(given: Any) -> Any:
    """The same for an asynchronous connection, of psycopg or asyncpg."""
    if not is_async(given):
        raise InvalidInput("connection", f"{type(given).__name__} is not asynchronous; {_REMEDY}")
    if hasattr(given, "sync_session"):  # AsyncSession: begins its transaction first
        given = await given.connection()
    found = _find_driver_connection(given)
    if isinstance(found, psycopg.AsyncConnection):
        _refuse_autocommit(given, found)
        return found
    connection = find_asyncpg(found)
    if connection is None:
        raise InvalidInput("connection", f"{_name(given, found)} is not one Penstock can write through; {_REMEDY}")
    if not connection.is_in_transaction() and hasattr(given, "exec_driver_sql"):
        # SQLAlchemy begins the caller's transaction with its first statement.
        await given.exec_driver_sql(query("begin_callers_transaction"))
    if not connection.is_in_transaction():
        raise InvalidInput(
            "connection",
            "it is in no transaction, and asyncpg commits each statement by itself; open one: async with"
            " connection.transaction()",
        )
    return connection


def _refuse_autocommit(given: Any, found: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Raise where there is no transaction to be a part of: what is written would stay, whatever the caller decides."""
    # To commit each statement outside of `atomic` is Django's way: who hands in its connection knows it.
    if _is_djangos(given) or _is_djangos(getattr(given, "db", None)):
        return
    if found.autocommit and found.info.transaction_status == TransactionStatus.IDLE:
        opened = "async with" if isinstance(found, psycopg.AsyncConnection) else "with"
        raise InvalidInput(
            "connection",
            "it is in no transaction, and in autocommit mode, which commits each statement by itself; open one: "
            f"{opened} connection.transaction(); of SQLAlchemy use an isolation level other than AUTOCOMMIT",
        )


def _name(given: Any, found: Any) -> str:
    """What was handed in, and what was found beneath it."""
    name = type(given).__name__
    return name if found is given else f"{name} over {type(found).__module__.partition('.')[0]}"


def callers_cursor(connection: psycopg.Connection[Any]) -> psycopg.Cursor[TupleRow]:
    """A cursor as Penstock's own connections have it, whatever the caller's makes: Django's would put the values into
    the text, and take times for its own zone's.
    """
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
    return cursor


async def fetch_async(connection: Any, text: LiteralString, parameters: dict[str, Any]) -> list[TupleRow]:
    """Send a query on an asynchronous connection; its rows."""
    if not isinstance(connection, psycopg.AsyncConnection):
        return await fetch_by_asyncpg(connection, text, parameters)
    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
    return await (await cursor.execute(text, parameters)).fetchall()


@contextmanager
def part_of_transaction(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """All or nothing of the block, as a part of the caller's transaction; on Django's connection outside of `atomic` it
    is a transaction of its own.
    """
    if _is_about_to_begin(connection):
        # The driver begins the caller's transaction with its first statement. Without one the block would be taken
        # for a whole transaction, and committed at its end whatever the caller decides.
        connection.execute(query("begin_callers_transaction"))
    with connection.transaction():
        yield


@asynccontextmanager
async def part_of_transaction_async(connection: Any) -> AsyncIterator[None]:
    """The same on an asynchronous connection."""
    if not isinstance(connection, psycopg.AsyncConnection):
        async with asyncpg_part_of_transaction(connection):
            yield
        return
    if _is_about_to_begin(connection):
        await connection.execute(query("begin_callers_transaction"))
    async with connection.transaction():
        yield


@contextmanager
def callers_session(connection: Any) -> Iterator[None]:
    """In the block, text that the caller's session cannot carry is an InvalidInput, what it lacks a SchemaMismatch,
    what its role must not do a PenstockError. What makes the caller repeat its transaction stays as the driver has it.
    """
    try:
        yield
    except UnicodeEncodeError:
        if find_asyncpg(connection) is None:
            encoding = connection.info.parameter_status("client_encoding")
        else:
            encoding = connection.get_settings().client_encoding
        raise InvalidInput(
            "connection", f"its client_encoding, {encoding}, cannot carry all of the text; set client_encoding to UTF8"
        ) from None
    except Exception as error:  # of either driver
        if (told := refusal(error, "the caller's database")) is not None:
            raise told from error
        raise


def _is_about_to_begin(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return not connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
