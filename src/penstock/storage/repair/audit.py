"""The table of the audit, on one database: an act is entered before it is done, and what came of it after."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from penstock.acting import Actor
from penstock.model.audit_entry import AuditEntry
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = ["Intent", "Outcome", "begin", "end", "forget", "read"]

Outcome = Literal["done", "not done", "unknown"]
# What one look at old entries removes.
FORGET_MOST = 10_000


class Intent(NamedTuple):
    """An act that is about to be done; `call` is drawn for it and never comes again."""

    call: uuid.UUID
    actor: Actor
    act: str
    target: str | None
    detail: Mapping[str, Any]


def begin(connection: Connection, intent: Intent) -> int:
    """Enter an act; the number of its entry."""
    values = {
        "call": intent.call,
        "actor": intent.actor.name,
        "source": intent.actor.source,
        "address": intent.actor.address,
        "act": intent.act,
        "target": intent.target,
        "detail": json.dumps(intent.detail),
    }
    row = connection.execute(query("begin_audit"), values).fetchone()
    assert row is not None  # noqa: S101
    return int(row[0])


def end(connection: Connection, id_: int, outcome: Outcome, count: int | None, detail: Mapping[str, Any]) -> None:
    """Add to an entry what came of the act."""
    values = {"id": id_, "outcome": outcome, "count": count, "detail": json.dumps(detail)}
    connection.execute(query("end_audit"), values)


def read(
    connection: Connection,
    *,
    limit: int,
    before: int | None,
    lowest: int | None,
    actor: str | None,
    act: str | None,
    target: str | None,
) -> list[AuditEntry]:
    """The newest entries of which that is so; of `lowest` on."""
    values = {"limit": limit, "before": before, "lowest": lowest, "actor": actor, "act": act, "target": target}
    return [
        AuditEntry(
            id=row[0],
            at=row[1],
            actor=row[2],
            source=row[3],
            address=row[4],
            database_role=row[5],
            act=row[6],
            target=row[7],
            count=row[8],
            detail=msgspec.json.decode(row[9]),
            outcome=row[10],
        )
        for row in connection.execute(query("read_audit"), values).fetchall()
    ]


def forget(connection: Connection, days: float) -> int:
    """Remove some of the entries that are older than so many days; how many."""
    row = connection.execute(query("forget_audit"), {"days": days, "limit": FORGET_MOST}).fetchone()
    return int(row[0]) if row else 0
