"""What of the scheduled jobs is due when. It looks at some thousand rows, however many there are."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = ["StoredSpan", "read_due"]

# So many rows of each span.
MOST_ROWS = 2_000


class StoredSpan(NamedTuple):
    """What this database has of a span."""

    number: int
    until: datetime | None
    jobs: int
    is_exact: bool


def read_due(connection: Connection, partitions: Collection[int] | None) -> list[StoredSpan]:
    """Each span, of these partitions or of all."""
    asked = {"most": MOST_ROWS, "partitions": None if partitions is None else array_text(partitions)}
    return [StoredSpan(*row) for row in connection.execute(query("due_jobs"), asked).fetchall()]
