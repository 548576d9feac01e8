"""Leases, and reading the jobs they are about by constant bounds.

The bounds are written into the statement, so that the planner reads only the table partitions that hold the jobs
and locks no others. A leased job that is not stored is an error, never silently left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from penstock.errors import PenstockError
from penstock.storage.arrays import array_text
from penstock.storage.database import Connection
from penstock.storage.enqueue import RANGE

__all__ = ["Lease", "LeasedJob", "read_jobs"]

_JOBS = "select id, args::text, key, attributes::text from {table} where {which}"
# A range this well filled is read by its bounds; the others by their ids.
_WORTH_BOUNDS = 8


@dataclass(slots=True)
class Lease:
    """A worker's numbered right to run jobs of a range."""

    id: int
    partition_id: int
    priority: int
    pos: int
    range: int
    low: int
    high: int
    members: str | None
    attempt: int
    rescues: int
    is_ahead: bool
    task: str
    waited_seconds: float
    # Jobs of it that have not been settled; kept by the worker.
    left: int = 0
    # Monotonic seconds of when the worker got it.
    taken_at: float = 0.0

    @property
    def positions(self) -> list[int]:
        """Which jobs of the range are meant."""
        if self.members is None:
            return list(range(self.low, self.high))
        members = self.members
        return [p for p in range(self.low, self.high) if members[p] == "1"]


LeasedJob = tuple[int, str, bytes | None, str | None]  # id, args, key, attributes


def read_jobs(connection: Connection, leases: Sequence[Lease]) -> dict[int, LeasedJob]:
    """The jobs of these leases, by id."""
    bounds = []
    ids: list[int] = []
    for lease in leases:
        if lease.members is None and lease.high - lease.low >= _WORTH_BOUNDS:
            bounds.append((lease.range * RANGE + lease.low, lease.range * RANGE + lease.high))
        else:
            ids += [lease.range * RANGE + position for position in lease.positions]
    jobs: dict[int, LeasedJob] = {}
    cursor = connection.cursor(binary=True)
    for low, high in bounds:
        which = sql.SQL("id >= {} and id < {}").format(sql.Literal(low), sql.Literal(high))
        jobs.update({row[0]: row for row in cursor.execute(_statement("job", which), prepare=False).fetchall()})
    if ids:
        jobs.update({row[0]: row for row in cursor.execute(_statement("job", _any(ids)), prepare=False).fetchall()})
    expected = sum(high - low for low, high in bounds) + len(ids)
    if len(jobs) < expected:
        wanted = {id_ for low, high in bounds for id_ in range(low, high)}.union(ids)
        missing = sorted(wanted - jobs.keys())
        rows: list[Any] = cursor.execute(_statement("job_kept", _any(missing)), prepare=False).fetchall()
        jobs.update((row[0], row) for row in rows)
        if len(jobs) < expected:
            lost = sorted(wanted - jobs.keys())
            raise PenstockError(
                f"{len(lost)} leased jobs are not stored, the first is {lost[0]}: run `penstock doctor`"
            )
    return jobs


def _statement(table: str, which: sql.Composable) -> sql.Composed:
    return sql.SQL(_JOBS).format(table=sql.Identifier("penstock", table), which=which)


def _any(ids: Sequence[int]) -> sql.Composable:
    return sql.SQL("id = any ({}::bigint[])").format(sql.Literal(array_text(ids)))
