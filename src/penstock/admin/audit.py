"""The audit as a person reads it: who did what, on what, from where, over all shards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

from penstock.admin.answers import ask_everywhere
from penstock.model.audit_entry import AuditEntry
from penstock.model.checks import HIGHEST_ID, checked_count, checked_entry_id, checked_name, checked_run_at
from penstock.shards.databases import Databases
from penstock.storage.repair import audit as storage

__all__ = ["audit"]

MOST_LISTED = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def audit(
    databases: Databases,
    *,
    limit: int = 100,
    before: int | str | None = None,
    actor: str | None = None,
    act: str | None = None,
    target: str | None = None,
    since: datetime | None = None,
) -> list[AuditEntry]:
    """The newest entries over all shards, below `before`, by whom, of which act, on what, and since when."""
    checked_count("limit", limit, most=MOST_LISTED)
    read = partial(
        storage.read,
        limit=limit,
        before=None if before is None else checked_entry_id(before),
        lowest=None if since is None else _lowest_id(checked_run_at(since, "since")),
        actor=None if actor is None else checked_name("actor", actor),
        act=None if act is None else checked_name("act", act),
        target=None if target is None else checked_name("target", target),
    )
    found = [entry for each in ask_everywhere(databases, read) for entry in each]
    return sorted(found, key=lambda entry: entry.id, reverse=True)[:limit]


def _lowest_id(since: datetime) -> int:
    """Of entries from then on: ids are in the order of time, a microsecond has 1,024 of them."""
    return min((since - _EPOCH) // timedelta(microseconds=1) * 1_024, HIGHEST_ID)
