"""Pruning: new tables are made ahead, old ones are let go whole, and nobody ever waits for it.

A slice of history goes when its time has come; the few rows in it that must stay longer are moved into the slice
in use. A table of jobs goes when hardly any of its jobs is wanted; those few are moved to `job_kept`. The way out:

    used ─► passed ─► sealed ─► kept, marked ─► detached ─► forgotten ─► dropped
            nothing   nobody    what must stay  CONCURRENTLY, failures,
            is sent   can write is elsewhere    outside of    keys; before that,
            there     there                     transactions  what children wait for by now is kept, too

Each arrow is a commit, and where a table stands is read from the database: whoever comes after a crash goes on from
there. Locks are asked for 100 ms at most. A transaction that somebody holds open stops pruning, for that table, until
it ends; it never stops anybody else. One process prunes at a time, each time for about as long as it is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Timer
from typing import Any

from psycopg import errors, sql

from penstock.errors import PenstockError
from penstock.model.job_state import OUTCOME, State
from penstock.storage.catalogue.roles import owns_tables
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import DatabaseError, first_line, is_about_data
from penstock.storage.connection.flow import schema_of
from penstock.storage.connection.queries import fill, query
from penstock.storage.repair.control import bury_dead
from penstock.storage.upkeep.tables_ahead import make_ahead, use_daily_slice

__all__ = ["LOCKED", "Pruned", "detach", "prune"]

PATIENCE_SECONDS = 0.1
# Of a table of jobs that is let go, at most so many are kept, or a twentieth where that is more.
FEW_JOBS = 10_000
FEW_ROWS = 10_000
_BATCH = 5_000
PAGES = 200
_DAY = 86_400

# What an act on a table that somebody has locked ends with; it is tried again later.
LOCKED = (errors.LockNotAvailable, errors.QueryCanceled, errors.ObjectNotInPrerequisiteState, errors.DeadlockDetected)


@dataclass(slots=True)
class Pruned:
    """What one run did. `waits_for` names tables that somebody holds; `is_done`: nothing was left for want of time."""

    is_busy_elsewhere: bool = False
    is_done: bool = True
    buried: int = 0
    slices: list[int] = field(default_factory=list)
    job_tables: list[int] = field(default_factory=list)
    waits_for: list[str] = field(default_factory=list)


def prune(database: Database, retention: Mapping[str, float], *, budget_seconds: float = 2.0) -> Pruned:
    """Make tables ahead and let old ones go; `retention` gives the days each final state stays."""
    pruned = Pruned()
    with database.connect("prune guard") as guard, guard.transaction():
        row = guard.execute(query("try_duty_of_pruning")).fetchone()
        if row is None or not row[0]:
            pruned.is_busy_elsewhere = True
            return pruned
        with database.connect("prune") as connection:
            # A connection of its own, closed afterwards: what is set here reaches nobody else. Behind a pooler it
            # would, so there a timer cancels what takes too long.
            if not database.is_pooled:
                connection.execute(query("be_impatient_in_session"))
            _Pruning(database, connection, retention, budget_seconds, pruned).run()
    return pruned


def detach(database: Database, connection: Connection, parent: str, table: str, standing: str) -> bool:
    """Take a table out of its parent; False where somebody holds it for now, and then it is gone on with later.

    Outside of a transaction: it waits for those who read the parent, and while it waits nobody waits for it. Only the
    tables' owner can do that; for a worker of another role the owner's function does it, as briefly as can be.
    """
    if standing in ("alone", "gone"):
        return True
    if not owns_tables(connection):
        row = connection.execute(query("detach_table"), {"parent": parent, "table": table}).fetchone()
        return bool(row and row[0])
    name = "finish_detaching" if standing == "pending" else "detach_concurrently"
    tables = {"parent": sql.Identifier(parent), "table": sql.Identifier(table)}
    timer = Timer(PATIENCE_SECONDS, connection.cancel_safe) if database.is_pooled else None
    if timer is not None:
        timer.start()
    try:
        connection.execute(fill(name, schema_of(connection), **tables))
    except LOCKED:
        return False
    finally:
        if timer is not None:
            timer.cancel()
            timer.join()
    return True


def drop(connection: Connection, table: str, removal: str, which: Mapping[str, int]) -> None:
    """Drop a table and remove what is noted about it. Raises one of LOCKED where somebody reads it."""
    with connection.transaction():
        connection.execute(query("be_impatient"))
        connection.execute(query("drop_table"), {"table": table})
        connection.execute(query(removal), which)


class _Pruning:
    """One run."""

    def __init__(
        self,
        database: Database,
        connection: Connection,
        retention: Mapping[str, float],
        budget_seconds: float,
        pruned: Pruned,
    ) -> None:
        self._database = database
        self._connection = connection
        self._days = [retention[state] for state in OUTCOME]
        self._deadline = database.clock.monotonic() + budget_seconds
        self._pruned = pruned
        # What is told at the end, about tables that have to stay.
        self._damaged: list[str] = []

    def run(self) -> None:
        with self._unless_locked("tables ahead"):
            make_ahead(self._connection, max(self._days))
            use_daily_slice(self._connection)
        self._run("note_writers")
        self._bury()
        with self._unless_locked("finished"):
            for slice_ in self._rows("slices_to_let_go"):
                with self._unless_damaged(f"finished_{slice_[0]}"):
                    self._let_slice_go(*slice_)
        with self._unless_locked("job"):
            for part in self._rows("job_tables_to_let_go"):
                with self._unless_damaged(f"job_{part[0]}"):
                    self._let_jobs_go(*part)
        with self._unless_locked("job_kept"):
            self._walk("clean_kept", {})
        if self._damaged:
            raise PenstockError("; ".join(self._damaged))

    def _bury(self) -> None:
        """Dead letters whose time has come become history, which goes with its slice."""
        age = {"age_seconds": self._days[OUTCOME[State.FAILED]] * _DAY, "limit": _BATCH}
        while self._has_time():
            ids = [row[0] for row in self._connection.execute(query("dead_before"), age)]
            if not ids:
                return
            self._pruned.buried += bury_dead(self._connection, ids)

    def _let_slice_go(self, number: int, closed_days: float, counts: list[int], marked: bool, standing: str) -> None:
        if not marked:
            if closed_days < min(self._days) or not self._has_time():
                return
            if counts is None:
                counts = self._run("count_slice", {"number": number})
            if closed_days < self._days_of_most(counts):
                return
            while self._run("keep_longer", {"number": number, "days": self._days, "pages": PAGES}):
                if not self._has_time():
                    return
        if not self._detach("finished", f"finished_{number}", standing):
            return
        if standing != "gone":
            # Whoever enqueued a child behind one of its jobs held `finished` until then, and has been waited for.
            self._run("keep_parents", {"number": number})
            while self._run("forget_slice", {"number": number, "pages": PAGES}):
                if not self._has_time():
                    return
        self._drop(f"finished_{number}", "remove_slice", {"number": number})
        self._pruned.slices.append(number)

    def _days_of_most(self, counts: Sequence[int]) -> float:
        """The days after which so few rows must stay that they may be moved."""
        few = max(FEW_ROWS, sum(counts) // 4)
        for days in sorted(self._days):
            if sum(count for count, stays in zip(counts, self._days, strict=True) if stays > days) <= few:
                return days
        return max(self._days)

    def _let_jobs_go(self, low: int, high: int, marked: bool, keeps_keys: bool, standing: str, size: int) -> None:
        if not self._has_time() or (standing == "gone" and keeps_keys):
            return
        if not marked:
            few = max(FEW_JOBS, size // 20)
            if not self._run("keep_jobs", {"low": low, "high": high, "few": few}):
                return
        if not self._detach("job", f"job_{low}", standing):
            return
        if not self._walk("forget_jobs", {"low": low, "high": high, "keeps_keys": keeps_keys}):
            return
        self._drop(f"job_{low}", "remove_job_table", {"low": low})
        self._pruned.job_tables.append(low)

    def _detach(self, parent: str, table: str, standing: str) -> bool:
        is_detached = detach(self._database, self._connection, parent, table, standing)
        if not is_detached:
            self._pruned.waits_for.append(table)
        return is_detached

    def _drop(self, table: str, removal: str, which: Mapping[str, int]) -> None:
        drop(self._connection, table, removal, which)

    def _walk(self, name: str, where: Mapping[str, int]) -> bool:
        """Batch by batch to the end; whether it got there in time."""
        after: int | None = 0
        while after is not None:
            if not self._has_time():
                return False
            after = self._run(name, {**where, "after": after, "limit": _BATCH})
        return True

    @contextmanager
    def _unless_locked(self, what: str) -> Iterator[None]:
        try:
            yield
        except LOCKED:
            self._pruned.waits_for.append(what)

    @contextmanager
    def _unless_damaged(self, table: str) -> Iterator[None]:
        """A row that cannot be moved keeps its own table, and no other."""
        try:
            yield
        except DatabaseError as error:
            if not is_about_data(error):
                raise
            self._damaged.append(f"table {table} cannot be let go: {first_line(error)}")

    def _has_time(self) -> bool:
        has_time = self._database.clock.monotonic() < self._deadline
        self._pruned.is_done = self._pruned.is_done and has_time
        return has_time

    def _rows(self, name: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query(name)).fetchall()

    def _run(self, name: str, parameters: Mapping[str, Any] | None = None) -> Any:
        row = self._connection.execute(query(name), parameters).fetchone()
        return row[0] if row else None
