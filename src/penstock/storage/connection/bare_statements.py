"""Statements that are sent again and again, without the driver's cursor around them.

A cursor looks at each value's type anew, keeps books of what is prepared, and reads rows as objects: four times the
work of sending the statement. Where a statement has a handful of plain values and answers with one, that is most of
what its call costs this side. Everything else goes through the driver's cursor.

The session keeps the statement prepared; behind a transaction pooler that cannot be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from psycopg import errors, generators
from psycopg.abc import PQGen
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from penstock.storage.connection.flow import Flow
from penstock.storage.connection.queries import query

__all__ = ["Plain", "execute_bare"]

# Text must hold no NUL, with which it would end: JSON and names hold none.
Plain = int | str | bytes | None

_VALUE = re.compile(r"%\((\w+)\)s|%%")
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


def execute_bare(connection: Flow, name: str, values: Mapping[str, Plain]) -> bytes | None:
    """Send a query of the storage, as one transaction. The first value of its only row, as the server writes it: a
    number is its digits.
    """
    text, names = _numbered(name, connection.schema)
    with connection.lock:
        if name not in connection.prepared:
            connection.wait(_prepare(connection, name, text))
            connection.prepared.add(name)
        result = connection.wait(_execute(connection, name, [values[each] for each in names]))
    return result.get_value(0, 0)


def _prepare(connection: Flow, name: str, text: bytes) -> PQGen[None]:
    connection.pgconn.send_prepare(name.encode(), text)
    _check((yield from generators.execute(connection.pgconn)))


def _execute(connection: Flow, name: str, values: list[Plain]) -> PQGen[PGresult]:
    sent: list[bytes | None] = []
    formats = [Format.TEXT] * len(values)
    for number, value in enumerate(values):
        if value is None:
            sent.append(None)
        elif isinstance(value, str):
            sent.append(value.encode())
        elif isinstance(value, bytes):
            sent.append(value)
            formats[number] = Format.BINARY
        else:
            sent.append(b"%d" % value)
    connection.pgconn.send_query_prepared(name.encode(), sent, formats)
    return _check((yield from generators.execute(connection.pgconn)))


def _check(results: Sequence[PGresult]) -> PGresult:
    for result in results:
        if result.status not in _DONE:
            raise errors.error_from_result(result)
    return results[0]


@cache
def _numbered(name: str, schema: str) -> tuple[bytes, list[str]]:
    """The text with its values numbered, as the server takes it, and their names in order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        given = found[1]
        if given is None:
            return "%"
        if given not in names:
            names.append(given)
        return f"${names.index(given) + 1}"

    return _VALUE.sub(number, query(name, schema)).encode(), names
