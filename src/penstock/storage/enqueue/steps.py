"""What a call sends, apart from how it is sent.

What to send is decided by generators that yield statements, each a query's name with its parameters, and are given
their rows. `drive` runs one on a connection, `drive_async` on an asynchronous one, `drive_transaction` in a transaction
of its own: so that all do the same, also inside a caller's transaction.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.connection.schema_name import SCHEMA
from penstock.storage.enqueue.receipts import Receipt

__all__ = ["CopyData", "LastParameters", "Steps", "drive", "drive_async", "drive_transaction"]

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


def drive(connection: Connection, steps: Steps[T], schema: str = SCHEMA) -> T:
    """Send what the steps yield; what they return. `schema`: the one meant on a connection that is not ours."""
    cursor = connection.cursor(row_factory=tuple_row)
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


async def drive_async(connection: psycopg.AsyncConnection[Any], steps: Steps[T], schema: str = SCHEMA) -> T:
    """The same as `drive`, on an asynchronous connection."""
    cursor = connection.cursor(row_factory=tuple_row)
    try:
        name, parameters = next(steps)
        while True:
            rows: Rows = []
            if isinstance(parameters, CopyData):
                async with cursor.copy(query(name, schema)) as copy:
                    await copy.write(parameters)
            else:
                rows = await (await cursor.execute(query(name, schema), parameters)).fetchall()
            name, parameters = steps.send(rows)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
