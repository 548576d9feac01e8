"""Statements that are one transaction without BEGIN and COMMIT."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.storage.connection.database import Connection

__all__ = ["one_transaction"]


@contextmanager
def one_transaction(connection: Connection, *, is_one_statement: bool = False) -> Iterator[None]:
    """Statements that are one round trip and one transaction; their rows are fetched after the block.

    What is sent before one Sync of the protocol is one transaction, and a statement alone is one by itself: BEGIN and
    COMMIT would cost as much as a small statement, and are sent only where another isolation level is the default.
    """
    if connection.isolation_level is not None:
        with connection.pipeline(), connection.transaction():
            yield
    elif is_one_statement:
        yield
    else:
        with connection.pipeline():
            yield
