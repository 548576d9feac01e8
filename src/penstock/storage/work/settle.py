"""What a worker tells about the jobs it held: those that succeeded, in bulk, and every other end one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from psycopg import errors

from penstock.storage.connection.arrays import array_text, members_text, nested_array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.work.leases import Lease

__all__ = [
    "RETURNING",
    "End",
    "EndKind",
    "Succeeded",
    "note_started",
    "settle_alone",
    "split_alone",
    "split_lease",
    "succeeded_parameters",
]

# After these the job runs again.
RETURNING = frozenset({"retry", "snooze", "release", "suspect"})
EndKind = Literal["retry", "snooze", "failed", "release", "suspect", "cancelled", "discarded", "expired"]


@dataclass(slots=True)
class Succeeded:
    """Jobs of one lease that succeeded, in parallel lists; times in microseconds."""

    lease: int
    token: int
    range: int
    is_whole: bool = False
    positions: list[int] = field(default_factory=list)
    ages: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    # None where no job of them has a result.
    results: list[bytes | None] | None = None

    def one_by_one(self) -> list[Succeeded]:
        """The same, each job for itself."""
        return [
            Succeeded(
                self.lease,
                self.token,
                self.range,
                positions=[position],
                ages=[self.ages[n]],
                runs=[self.runs[n]],
                results=None if self.results is None else [self.results[n]],
            )
            for n, position in enumerate(self.positions)
        ]

    @property
    def results_json(self) -> str | None:
        if self.results is None:
            return None
        return (b"[" + b",".join([b"null" if result is None else result for result in self.results]) + b"]").decode()


@dataclass(slots=True)
class End:
    """A job that ended in another way, or goes back; times in microseconds, None where it never started."""

    lease: int
    token: int
    position: int
    range: int
    end: EndKind
    error: str | None = None
    due_in: float = 0.0
    age: int | None = None
    run: int | None = None


def succeeded_parameters(worker: int, name: str, done: Sequence[Succeeded]) -> dict[str, Any]:
    """What the settling statement takes."""
    has_results = any(each.results is not None for each in done)
    return {
        "worker": worker,
        "name": name,
        "leases": array_text([each.lease for each in done]),
        "tokens": array_text([each.token for each in done]),
        "ranges": array_text([each.range for each in done]),
        "counts": array_text([len(each.positions) for each in done]),
        "members": array_text(["NULL" if each.is_whole else members_text(each.positions) for each in done]),
        "positions": nested_array_text([each.positions for each in done]),
        "ages": nested_array_text([each.ages for each in done]),
        "runs": nested_array_text([each.runs for each in done]),
        "results": [each.results_json for each in done] if has_results else None,
    }


@contextmanager
def _wait_briefly_for_locks(connection: Connection) -> Iterator[None]:
    """A transaction that does not wait long for locks."""
    with connection.transaction():
        connection.execute(query("wait_a_second_for_locks"))
        yield


def settle_alone(connection: Connection, worker: int, name: str, end: End) -> Literal["settled", "not held", "busy"]:
    """Settle one job in a transaction of its own, without waiting long for somebody who has its lease locked."""
    try:
        with _wait_briefly_for_locks(connection):
            not_held = connection.execute(
                query("settle_ended_if_leased"),
                {"worker": worker, "name": name, "ends": msgspec.json.encode([end]).decode()},
            ).fetchall()
    except errors.LockNotAvailable:
        return "busy"
    return "not held" if not_held else "settled"


def note_started(connection: Connection, worker: int, leases: Sequence[Lease]) -> None:
    """Note that everything left of these leases has started."""
    connection.execute(
        query("note_started_if_leased"),
        {
            "worker": worker,
            "leases": array_text([lease.id for lease in leases]),
            "tokens": array_text([lease.token for lease in leases]),
        },
    )


def split_lease(connection: Connection, worker: int, lease: int, token: int, job_id: int) -> int | None:
    """Give one job a lease of its own, with the same token; its number, or None where the job is not held."""
    row = connection.execute(
        query("split_lease_if_leased"),
        {"worker": worker, "lease": lease, "token": token, "range": job_id // 1024, "position": job_id % 1024},
    ).fetchone()
    return row[0] if row else None


def split_alone(
    connection: Connection, worker: int, lease: int, token: int, job_id: int
) -> int | Literal["busy"] | None:
    """The same without waiting long for somebody who has the lease locked."""
    try:
        with _wait_briefly_for_locks(connection):
            return split_lease(connection, worker, lease, token, job_id)
    except errors.LockNotAvailable:
        return "busy"
