"""Leases, and reading the jobs they are about by constant bounds.

The bounds are written into the statement, so that the planner reads only the table partitions that hold the jobs
and locks no others. A job that is not stored, or cannot be read, is never silently left out: whoever reads is told, and
sets it aside (see penstock.storage.work.set_aside). The others are read all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import Any, Protocol

from psycopg import sql

from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.error_meaning import DatabaseError, first_line, is_about_data
from penstock.storage.connection.flow import schema_of
from penstock.storage.connection.queries import fill
from penstock.storage.enqueue.job_group import RANGE

__all__ = [
    "Lease",
    "LeasedJob",
    "RangeMembers",
    "Stored",
    "count_slots",
    "leases_from",
    "leases_not_from",
    "members_of",
    "read_facts",
    "read_jobs",
]

# A range this well filled is read by its bounds; the others by their ids.
_WORTH_BOUNDS = 8


# From the digits of a member bitmap to their numbers.
_BITS = bytes.maketrans(b"01", b"\0\1")

NOT_STORED = "it is in no table of jobs"

# id, args, key, attributes; and the task, where jobs of several stand in one range.
LeasedJob = tuple[Any, ...]


@dataclass(slots=True)
class Lease:
    """A worker's numbered right to run jobs of a range; who ends them names number, token and range."""

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
    # Of jobs that are given to their handler together: a number that only their leases bear.
    batch: int | None = None
    # What its claim drew at random. It is the lease's, like the number, and unlike that it never comes again.
    token: int = 0
    # Whether its jobs must start one after the other, also beside those of other leases of the partition.
    starts_in_order: bool = False
    # Whether jobs of it that have the same key start one after the other in one slot.
    may_have_runs: bool = False
    # The job, where there is one and it came with the claim.
    only_job: LeasedJob | None = None
    # Jobs of it that have not been settled; kept by the worker.
    unsettled: int = 0
    # Whether another server answers than the one that gave it: that one may show jobs as running that have ended.
    is_in_doubt: bool = False
    # How many jobs its batch has, which share the handler's time; kept by the worker.
    together: int = 1
    # Monotonic seconds of when the worker got it.
    taken_at: float = 0.0
    # The positions of `members`, once somebody has asked for them.
    _positions: Sequence[int] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def positions(self) -> Sequence[int]:
        """Which jobs of the range are meant."""
        if self._positions is None:
            self._positions = members_of(self.low, self.high, self.members)
        return self._positions

    def keep_only(self, positions: Collection[int]) -> None:
        """Go on without the other jobs."""
        self.members = "".join("1" if position in positions else "0" for position in range(RANGE))
        self._positions = None


class RangeMembers(Protocol):
    """Some jobs of one range: those of a lease, or of a row that is ready."""

    @property
    def range(self) -> int: ...
    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...
    @property
    def members(self) -> str | None: ...
    @property
    def positions(self) -> Sequence[int]: ...


def members_of(low: int, high: int, members: str | None) -> Sequence[int]:
    """Which positions of a range a row means: those of its member bitmap, or all between its bounds."""
    if members is None:
        return range(low, high)
    return list(compress(range(low, high), members[low:high].encode().translate(_BITS)))


def count_slots(leases: Sequence[Lease]) -> int:
    """How many slots their jobs take: a batch takes one."""
    alone = sum(len(lease.positions) for lease in leases if lease.batch is None)
    return alone + len({(lease.partition_id, lease.batch) for lease in leases if lease.batch is not None})


def leases_from(known: Iterable[Lease], leases: Iterable[Lease]) -> list[Lease]:
    """Those of `leases` that are what is left of a known lease, or were split from one."""
    by_claim: dict[tuple[int, int], list[set[int]]] = {}
    for each in known:
        by_claim.setdefault((each.token, each.range), []).append(set(each.positions))
    return [
        lease
        for lease in leases
        if any(positions.issuperset(lease.positions) for positions in by_claim.get((lease.token, lease.range), ()))
    ]


def leases_not_from(known: Iterable[Lease], leases: Sequence[Lease]) -> list[Lease]:
    """Those of `leases` that come from none of the known ones: nobody has heard of them yet."""
    ids = {lease.id for lease in leases_from(known, leases)}
    return [lease for lease in leases if lease.id not in ids]


class Stored(dict[int, tuple[Any, ...]]):
    """Facts of jobs, by id; `unreadable` says why of those that are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable: dict[int, str] = {}

    def add(self, others: Stored) -> None:
        """Take in what else was read."""
        self.update(others)
        self.unreadable.update(others.unreadable)


def read_jobs(connection: Connection, leases: Sequence[RangeMembers], *, with_task: bool = False) -> Stored:
    """The jobs of these leases, by id."""
    return read_facts(connection, "read_leased_jobs_of_tasks" if with_task else "read_leased_jobs", leases)


def read_facts(connection: Connection, name: str, some: Sequence[RangeMembers], **parts: object) -> Stored:
    """What a query tells of these jobs, by id, which is its first column; `parts` fill it, with the table and which."""
    bounds = []
    ids: list[int] = []
    for each in some:
        if each.members is None and each.high - each.low >= _WORTH_BOUNDS:
            bounds.append((each.range * RANGE + each.low, each.range * RANGE + each.high))
        else:
            ids += [each.range * RANGE + position for position in each.positions]
    jobs = Stored()
    reader = _Reader(connection, name, parts)
    reader.read_within("job", bounds, jobs)
    if ids:
        reader.read_by_id("job", ids, jobs)
    if len(jobs) < sum(high - low for low, high in bounds) + len(ids):
        wanted = {id_ for low, high in bounds for id_ in range(low, high)}.union(ids)
        missing = sorted(wanted - jobs.keys() - jobs.unreadable.keys())
        if missing:
            reader.read_by_id("job_kept", missing, jobs)
        for id_ in missing:
            if id_ not in jobs:
                jobs.unreadable.setdefault(id_, NOT_STORED)
    return jobs


class _Reader:
    """One query about jobs, of whichever table and of whichever jobs."""

    def __init__(self, connection: Connection, name: str, parts: Mapping[str, object]) -> None:
        self._connection = connection
        self._schema = schema_of(connection)
        self._name = name
        self._parts = parts

    def read(self, table: str, *which: sql.Composable) -> list[tuple[Any, ...]]:
        """The rows of each condition, in one round trip."""
        statements = [
            fill(self._name, self._schema, table=sql.Identifier(table), which=each, **self._parts) for each in which
        ]
        with self._connection.pipeline() if len(which) > 1 else nullcontext():
            cursors = [self._connection.cursor(binary=True).execute(each, prepare=False) for each in statements]
        return list(chain.from_iterable([cursor.fetchall() for cursor in cursors]))

    def read_within(self, table: str, bounds: Sequence[tuple[int, int]], jobs: Stored) -> None:
        """Read those of the jobs between these bounds that a table holds; where that fails, by halves, and of one pair
        by id.
        """
        if not bounds:
            return
        try:
            rows = self.read(table, *[fill("within_bounds", low=low, high=high) for low, high in bounds])
        except (DatabaseError, ValueError) as error:
            if not is_about_data(error):
                raise
            if len(bounds) == 1:
                self.read_by_id(table, range(*bounds[0]), jobs)
                return
            half = len(bounds) // 2
            self.read_within(table, bounds[:half], jobs)
            self.read_within(table, bounds[half:], jobs)
        else:
            jobs.update({row[0]: row for row in rows})

    def read_by_id(self, table: str, ids: Sequence[int], jobs: Stored) -> None:
        """Read those of these jobs that a table holds; where that fails, by halves, until the one it fails for is
        known."""
        try:
            rows = self.read(table, fill("among_ids", ids=array_text(ids)))
        except (DatabaseError, ValueError) as error:
            if not is_about_data(error):
                raise
            if len(ids) == 1:
                jobs.unreadable[ids[0]] = f"it cannot be read: {first_line(error)}"
                return
            half = len(ids) // 2
            self.read_by_id(table, ids[:half], jobs)
            self.read_by_id(table, ids[half:], jobs)
        else:
            jobs.update({row[0]: row for row in rows})
