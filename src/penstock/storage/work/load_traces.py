"""The trace contexts of loads, for the jobs of leases that came with them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = ["traces_of_loads"]


def traces_of_loads(connection: Connection, ranges: Iterable[int]) -> dict[int, dict[str, str]]:
    """By range, of those that came with a load which has one."""
    rows = connection.execute(query("traces_of_loads"), {"ranges": array_text(ranges)}).fetchall()
    return {number: msgspec.json.decode(trace) for number, trace in rows}
