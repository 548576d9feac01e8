"""Which database a caller's connection leads to."""

from __future__ import annotations

from penstock.errors import InvalidInput
from penstock.storage.enqueue.steps import Steps

__all__ = ["identify_database"]


def identify_database() -> Steps[tuple[int, str]]:
    """The number of the shard that a connection leads to, and its system."""
    ((has_schema,),) = yield "has_schema", {}
    if not has_schema:
        raise InvalidInput(
            "connection", "it leads to a database without Penstock's schema: connect to a shard of this app"
        )
    ((number, _, system, _),) = yield "read_identity", {}
    return number, str(system)
