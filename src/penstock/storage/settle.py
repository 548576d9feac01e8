"""What a worker tells about the jobs it held: those that succeeded, in bulk, and every other end one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from penstock.storage.database import Connection
from penstock.storage.queries import query

__all__ = ["End", "EndKind", "Succeeded", "split_lease"]

EndKind = Literal["retry", "snooze", "failed", "release", "cancelled", "discarded", "expired"]


@dataclass(slots=True)
class Succeeded:
    """Jobs that succeeded, in parallel lists; times in microseconds. `results` is None where no job has one."""

    leases: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    ages: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    results: list[bytes | None] | None = None
    ranges: set[int] = field(default_factory=set)


@dataclass(slots=True)
class End:
    """A job that ended in another way, or goes back; times in microseconds, None where it never started."""

    lease: int
    position: int
    range: int
    end: EndKind
    error: str | None = None
    due_in: float = 0.0
    age: int | None = None
    run: int | None = None


def split_lease(connection: Connection, worker: int, lease: int, position: int) -> int | None:
    """Give one job a lease of its own; its number, or None where the job is not held."""
    row = connection.execute(
        query("split_lease_if_leased"), {"worker": worker, "lease": lease, "position": position}
    ).fetchone()
    return row[0] if row else None
