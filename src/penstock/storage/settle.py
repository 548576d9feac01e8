"""Settling: telling the database what became of leased jobs, many at once.

Everything a worker ended since the last time goes in one transaction. What the database does not hold for this worker
any more comes back: those leases are lost, and nothing about them was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from penstock.storage.database import Connection
from penstock.storage.arrays import array_text
from penstock.storage.queries import query

__all__ = ["End", "EndKind", "Succeeded", "children_of", "settle_ended", "settle_succeeded", "split_lease"]

EndKind = Literal["retry", "snooze", "failed", "release", "cancelled", "discarded", "expired"]


@dataclass(slots=True)
class Succeeded:
    """Jobs that succeeded, in parallel lists; times in microseconds. `results` is empty where none has one."""

    leases: list[int]
    positions: list[int]
    ages: list[int]
    runs: list[int]
    results: list[bytes | None] | None = None


@dataclass(slots=True)
class End:
    """A job that ended in another way, or goes back."""

    lease: int
    position: int
    end: EndKind
    error: str | None = None
    due_in: float = 0.0
    age: int | None = None
    run: int | None = None


def settle_succeeded(connection: Connection, worker: int, name: str, done: Succeeded) -> list[tuple[int, int]]:
    """Settle successes; the (lease, position) pairs that were not held."""
    results = None
    if done.results is not None:
        results = (b"[" + b",".join([b"null" if r is None else r for r in done.results]) + b"]").decode()
    return connection.execute(
        query("settle_succeeded_if_leased"),
        {
            "worker": worker,
            "name": name,
            "leases": array_text(done.leases),
            "positions": array_text(done.positions),
            "ages": array_text(done.ages),
            "runs": array_text(done.runs),
            "results": results,
        },
    ).fetchall()  # type: ignore[return-value]


def settle_ended(connection: Connection, worker: int, name: str, ends: Sequence[End]) -> list[tuple[int, int]]:
    """Settle every other end; the (lease, position) pairs that were not held."""
    return connection.execute(
        query("settle_ended_if_leased"), {"worker": worker, "name": name, "ends": msgspec.json.encode(ends).decode()}
    ).fetchall()  # type: ignore[return-value]


def split_lease(connection: Connection, worker: int, lease: int, position: int) -> int | None:
    """Give one job a lease of its own; its number, or None where the job is not held."""
    row = connection.execute(
        query("split_lease_if_leased"), {"worker": worker, "lease": lease, "position": position}
    ).fetchone()
    return row[0] if row else None


def children_of(connection: Connection, ranges: Sequence[int]) -> list[int]:
    """The jobs that wait for any job of these ranges."""
    return [
        row[0] for row in connection.execute(query("children_of_ranges"), {"ranges": array_text(ranges)}).fetchall()
    ]
