"""Which database a caller's connection leads to."""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import InvalidInput
from penstock.storage.enqueue.steps import Steps

__all__ = ["CallersDatabase", "identify_database"]


class CallersDatabase(NamedTuple):
    """Which shard a caller's database is, of which system, and the oldest program that its functions serve."""

    number: int
    system: str | None
    oldest_program: int


def identify_database() -> Steps[CallersDatabase]:
    """What database a connection leads to."""
    ((has_schema,),) = yield "has_schema", {}
    if not has_schema:
        raise InvalidInput(
            "connection", "it leads to a database without Penstock's schema: connect to a database of this app"
        )
    ((number, system, oldest_program),) = yield "identify_database", {}
    return CallersDatabase(number, None if system is None else str(system), oldest_program)
