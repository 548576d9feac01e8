"""What is sent in the transaction of an asyncpg connection.

asyncpg numbers parameters, asks the server for their types, and wants values of those. Where a query says `::json`, or
gets the text of an array, the text goes as text and is cast by the server: codecs that the application has set for its
own JSON see nothing of it. asyncpg is recognised without being imported: who hands in a connection has done that.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any

from penstock.storage.connection.queries import query

__all__ = ["asyncpg_part_of_transaction", "copy_by_asyncpg", "fetch_by_asyncpg", "find_asyncpg"]

_PARAMETER = re.compile(r"%%|%\((\w+)\)s(?:::(\w+(?:\(\d+\))?(?:\[\])?))?")
# Types of which a list is sent as one of texts, since asyncpg wants values of its own or the application's for them.
_LISTS_AS_TEXT = ("json[]", "bit(1024)[]")
_COPY = re.compile(r"copy (\w+)\.(\w+) \(([^)]*)\) from stdin \(encoding 'UTF8'\)")


def find_asyncpg(given: Any) -> Any:
    """The asyncpg connection that this is, or that a pool has lent as this; None where it is no such thing."""
    asyncpg = sys.modules.get("asyncpg")
    if asyncpg is None or not isinstance(given, asyncpg.Connection):
        return None
    # What a pool lends cannot be remembered, unlike the connection in it.
    return getattr(given, "_con", None) or given


async def fetch_by_asyncpg(connection: Any, text: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Send a query with `%(name)s` in it; its rows."""
    texts = frozenset(name for name, value in parameters.items() if isinstance(value, str))
    numbered, names = _number(text, texts)
    return [tuple(row) for row in await connection.fetch(numbered, *(parameters[name] for name in names))]


async def copy_by_asyncpg(connection: Any, text: str, lines: bytes) -> None:
    """Send lines by a `copy … from stdin`."""
    found = _COPY.fullmatch(text)
    if found is None:
        raise ValueError(f"no COPY that asyncpg could send: {text}")
    schema, table, columns = found.groups()
    # Bytes would be taken for the path of a file.
    await connection.copy_to_table(
        table, schema_name=schema, columns=columns.split(", "), source=memoryview(lines), encoding="UTF8"
    )


@asynccontextmanager
async def asyncpg_part_of_transaction(connection: Any) -> AsyncIterator[None]:
    """All or nothing of the block, as a part of a transaction, whether asyncpg began that or the caller by hand."""
    await connection.execute(query("set_savepoint"))
    try:
        yield
    except BaseException:
        if not connection.is_closed():
            await connection.execute(query("roll_back_to_savepoint"))
        raise
    await connection.execute(query("release_savepoint"))


@lru_cache(maxsize=256)
def _number(text: str, texts: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """A query with numbers for its parameters, of which these are given as text; their names in that order."""
    numbers: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        name, cast = found.groups()
        if name is None:
            return "%"
        numbered = f"${numbers.setdefault(name, len(numbers) + 1)}"
        if cast is None:
            return numbered
        if cast in _LISTS_AS_TEXT and name not in texts:
            return f"{numbered}::text[]::{cast}"
        return f"{numbered}::text::{cast}" if name in texts else f"{numbered}::{cast}"

    return _PARAMETER.sub(number, text), tuple(numbers)
