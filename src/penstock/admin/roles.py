"""What other database roles than the owner may do."""

from __future__ import annotations

from penstock.deadline import within
from penstock.errors import InvalidInput
from penstock.model.checks import checked_name
from penstock.storage import Database
from penstock.storage.catalogue import roles as storage

__all__ = ["grant"]


def grant(database: Database, kind: str, role: str) -> None:
    """Make an existing role a worker, producer or reader, and nothing else here; `none` takes all from it."""
    if kind not in storage.KINDS:
        raise InvalidInput("kind", f"must be one of {', '.join(storage.KINDS)}, not {kind!a:.200}")
    name = checked_name("role", role)
    with within(database.request_timeout):
        database.run(lambda connection: storage.grant(connection, kind, name))
