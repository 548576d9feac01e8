"""The figures that were noted minute by minute: the short history of a queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from penstock.model.history import Minute
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = ["add_up", "read_minutes"]

_NAMES = [each.name for each in fields(Minute)]
# These are no counts: of several databases' the greatest is taken.
_GREATEST = ("oldest_wait_seconds", "seconds")


def read_minutes(connection: Connection, partitions: Iterable[int], minutes: int) -> list[Minute]:
    """What this database noted of these partitions together in the last so many minutes, the oldest first."""
    asked = {"partitions": array_text(partitions), "minutes": minutes}
    rows = connection.execute(query("read_minutes"), asked).fetchall()
    return [Minute(**dict(zip(_NAMES, row, strict=True))) for row in rows]


def add_up(noted: Iterable[Minute]) -> list[Minute]:
    """What several databases noted, minute by minute, the oldest first."""
    by_minute: dict[Any, list[Minute]] = {}
    for each in noted:
        by_minute.setdefault(each.minute, []).append(each)
    return [_together(by_minute[minute]) for minute in sorted(by_minute)]


def _together(noted: Sequence[Minute]) -> Minute:
    if len(noted) == 1:
        return noted[0]
    values: dict[str, Any] = {"minute": noted[0].minute}
    for name in _NAMES[1:]:
        given = [value for each in noted if (value := getattr(each, name)) is not None]
        values[name] = None if not given else max(given) if name in _GREATEST else sum(given)
    return Minute(**values)
