"""What a call sends, apart from how it is sent.

What to send is decided by generators that yield statements, each a query's name with its parameters, and are given
their rows. `drive` runs one on a connection, `drive_transaction` in a transaction of its own, `drive_in` and
`drive_in_async` in a caller's: so that all do the same.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from penstock.storage.connection.asyncpg_connection import copy_by_asyncpg
from penstock.storage.connection.callers_transaction import callers_cursor, fetch_async
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.connection.schema_name import SCHEMA
from penstock.storage.enqueue.receipts import Receipt

__all__ = [
    "CopyData",
    "LastParameters",
    "Steps",
    "drive",
    "drive_in",
    "drive_in_async",
    "drive_transaction",
]

T = TypeVar("T")
# The server has answered everything it was asked.
_AT_REST = frozenset({TransactionStatus.IDLE, TransactionStatus.INTRANS, TransactionStatus.INERROR})


class CopyData(bytes):
    """Lines for COPY, in place of parameters."""


class LastParameters(dict[str, Any]):
    """The parameters of a call's last statement: COMMIT may travel with it."""


Parameters = dict[str, Any] | CopyData
Rows = list[tuple[Any, ...]]
Steps = Generator[tuple[str, Parameters], Rows, T]


def drive(connection: Connection, steps: Steps[T]) -> T:
    """Send what the steps yield; what they return."""
    return _drive(connection.cursor(row_factory=tuple_row), steps)


def drive_in(connection: Connection, steps: Steps[T], schema: str) -> T:
    """The same in a caller's transaction, on this schema: a connection that is not ours knows none."""
    return _drive(callers_cursor(connection), steps, schema)


def _drive(cursor: psycopg.Cursor[tuple[Any, ...]], steps: Steps[T], schema: str = SCHEMA) -> T:
    try:
        name, parameters = next(steps)
        while True:
            name, parameters = steps.send(_send(cursor, query(name, schema), parameters))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def drive_transaction(connection: Connection, steps: Steps[T], receipt: Receipt) -> T:
    """The same in a transaction of its own: BEGIN travels with the first statement, COMMIT with the last."""
    cursor = connection.cursor(row_factory=tuple_row)
    try:
        name, parameters = next(steps)
        with connection.pipeline():
            connection.execute(query("begin"))
            cursor.execute(query(name), parameters)
        rows = cursor.fetchall()
        while True:
            name, parameters = steps.send(rows)
            if isinstance(parameters, LastParameters):
                receipt.is_sent = True
                with connection.pipeline():
                    cursor.execute(query(name), parameters)
                    if receipt.kept_seconds is not None:
                        connection.execute(query("note_written"), receipt.note)
                    connection.execute(query("commit"))
                rows = cursor.fetchall()
            else:
                rows = _send(cursor, query(name), parameters)
    except StopIteration as end:
        connection.commit()
        return end.value  # type: ignore[no-any-return]
    except BaseException:
        if connection.info.transaction_status in _AT_REST:
            # What is raised is the first error, which says whether the server denied or the session ended.
            with suppress(psycopg.Error):
                connection.rollback()
        else:
            # Left in the middle of an answer it cannot be used again, however alive it looks.
            connection.close()
        raise


def _send(cursor: psycopg.Cursor[tuple[Any, ...]], text: LiteralString, parameters: Parameters) -> Rows:
    if isinstance(parameters, CopyData):
        with cursor.copy(text) as copy:
            copy.write(parameters)
        return []
    return cursor.execute(text, parameters).fetchall()


async def drive_in_async(connection: Any, steps: Steps[T], schema: str) -> T:
    """The same as `drive_in`, on an asynchronous connection of psycopg or asyncpg."""
    try:
        name, parameters = next(steps)
        while True:
            text = query(name, schema)
            if not isinstance(parameters, CopyData):
                rows = await fetch_async(connection, text, parameters)
            else:
                rows = []
                await _copy_async(connection, text, parameters)
            name, parameters = steps.send(rows)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def _copy_async(connection: Any, text: LiteralString, lines: CopyData) -> None:
    if not isinstance(connection, psycopg.AsyncConnection):
        await copy_by_asyncpg(connection, text, lines)
        return
    async with connection.cursor() as cursor, cursor.copy(text) as copy:
        await copy.write(lines)
