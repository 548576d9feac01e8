"""The audit over HTTP: who did what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta, Struct

from penstock.model.audit_entry import AuditEntry
from penstock.server.call import Call
from penstock.server.operation import Operations
from penstock.server.values import Instant

__all__ = ["audit"]

audit = Operations()


class AuditQuery(Struct, frozen=True, kw_only=True):
    """Which entries: by whom, of which act, on what, since when; those below an id."""

    actor: str | None = None
    act: str | None = None
    target: str | None = None
    since: Instant | None = None
    before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


@dataclass(frozen=True, slots=True)
class Audit:
    """Entries, the newest first. Give the id of the last as `before` for those before it."""

    entries: list[AuditEntry]
    unavailable: list[str]


@audit.add("GET", "/audit", may="read")
def read_audit(call: Call, query: AuditQuery) -> Audit:
    """Who did what, on what, from where, and what came of it; from HTTP, the command line and Python.

    A token that hides arguments is not told the reason of a cancel, which is its jobs' error.
    """
    found = call.app.audit(
        query.limit, query.before, actor=query.actor, act=query.act, target=query.target, since=query.since
    )
    if call.caller.hides_args:
        found = [_without_reason(entry) for entry in found]
    return Audit(found, call.unavailable())


def _without_reason(entry: AuditEntry) -> AuditEntry:
    return replace(entry, detail={name: value for name, value in entry.detail.items() if name != "reason"})
