"""The way of history into a lake, as far as the database has a part in it.

    open ─► closed ─► sealed ─► taken ─► detached ─► parents carried ─► counted ─► in the lake ─► forgotten ─► dropped
            nothing   nobody    prune    waits for   what children      count and  its manifest   failures,
            is sent   can write lets it  those who   wait for stays     checksum   lists it       progress
            there     there     be       use it

Each arrow is a commit, and where a slice stands is read from the database and the lake: whoever comes after a crash
goes on from there. One archive runs at a time. Idempotency keys are not forgotten: they outlive their jobs for as long
as history would have been kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.storage.ahead import rotate_slice
from penstock.storage.bulk import Part, parts
from penstock.storage.database import Connection, Database
from penstock.storage.prune import HELD, PAGES, detach, drop
from penstock.storage.queries import query

__all__ = ["Archiving", "Sum", "archiving", "read_identity", "read_slices"]

_PAUSE_SECONDS = 0.05
_COUNTERS = 2


class Sum(NamedTuple):
    """How many jobs, and the checksum over all that is known of them."""

    jobs: int
    checksum: int


def read_identity(connection: Connection) -> str:
    """By what a lake knows this database."""
    return str(connection.execute(query("identity")).fetchall()[0][0])


def read_slices(connection: Connection) -> list[int]:
    """The slices of history that are in the database, oldest first."""
    return [row[0] for row in connection.execute(query("slices"))]


@contextmanager
def archiving(database: Database, wait_seconds: float) -> Iterator[Archiving]:
    """Take what has ended until now, and hold the duty of archiving for as long as the block lasts."""
    with database.connect("archive guard") as guard, database.connect("archive") as connection:
        with guard.transaction():
            _take_duty(guard)
        if not database.is_pooled:
            connection.execute("set lock_timeout = '100ms'")
        archive = Archiving(database, connection, wait_seconds)
        # Before the duty is taken for good: the transaction that holds it would count among the possible writers.
        archive.close()
        with guard.transaction():
            _take_duty(guard)
            archive.take()
            yield archive


def _take_duty(guard: Connection) -> None:
    row = guard.execute(query("try_duty_of_archiving")).fetchone()
    if row is None or not row[1]:
        raise PenstockError("another archive of this database is running; let it end, then run this one")


class Archiving:
    """One run. `waits_for` names what somebody held for too long, and is left for the next run."""

    def __init__(self, database: Database, connection: Connection, wait_seconds: float) -> None:
        self._database = database
        self._connection = connection
        self._deadline = database.clock.monotonic() + wait_seconds
        self.waits_for: list[str] = []

    def close(self) -> None:
        """Let what ends from now on go to a new slice, and note who may still write to the old one."""
        if self._one("has_ended"):
            while not self._done_unless_held(lambda: rotate_slice(self._connection)) and self._has_time():
                pass
        self._connection.execute(query("note_closed"))

    def take(self) -> None:
        """Take every slice that nobody can write to any more, waiting a while for those of which that is not known."""
        while self._rows("unsealed_slices") and self._has_time():
            self._pause()
        self.waits_for += [f"finished_{row[0]}" for row in self._rows("unsealed_slices")]
        with self._database.connection() as connection, connection.transaction():
            connection.execute(query("wait_for_duty_of_pruning"))
            connection.execute(query("take_slices"))

    def taken(self) -> list[int]:
        """The slices to put into the lake and let go of, oldest first; those of an earlier run as well."""
        return [row[0] for row in self._rows("taken_slices")]

    def set_apart(self, number: int) -> bool:
        """Detach a slice and carry what children wait for; False where somebody holds it."""
        table = f"finished_{number}"
        while not detach(self._database, self._connection, "finished", table, self._standing(number)):
            if not self._has_time():
                self.waits_for.append(table)
                return False
            self._pause()
        self._connection.execute(query("carry_parents"), {"number": number})
        return True

    def count(self, number: int) -> Sum:
        """Count a slice that stands alone, and take its checksum, by several connections at a time."""
        pieces = parts(self._connection, Part("finished", 0, 0, only=number), 4 * _COUNTERS)

        def count_part(part: Part) -> Sum:
            with self._database.connection() as connection:
                row = connection.execute(
                    query("checksum_slice"), {"number": number, "low": part.low, "high": part.high}, prepare=False
                ).fetchone()
            assert row is not None  # noqa: S101
            return Sum(*row)

        jobs, checksum = 0, 0
        with ThreadPoolExecutor(_COUNTERS, "penstock-count") as threads:
            for found in threads.map(count_part, pieces):
                jobs += found.jobs
                checksum ^= found.checksum
        return Sum(jobs, checksum)

    def let_go(self, number: int, retention: Mapping[str, float]) -> bool:
        """Forget and drop a slice that is in the lake; False where somebody still reads it: the next run drops it."""
        if self._standing(number) != "gone":
            self._connection.execute(query("keep_keys"), {"number": number, "days": min(retention.values())})
            while self._one("forget_slice", number=number, pages=PAGES):
                pass
        which = {"number": number}
        while not self._done_unless_held(lambda: drop(self._connection, f"finished_{number}", "remove_slice", which)):
            if not self._has_time():
                self.waits_for.append(f"finished_{number}")
                return False
        return True

    def queues(self) -> list[str]:
        """The names of all queues."""
        return [row[0] for row in self._rows("queues_of_slice")]

    def _standing(self, number: int) -> str:
        return str(self._one("standing_of_slice", number=number))

    def _done_unless_held(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except HELD:
            self._pause()
            return False
        return True

    def _has_time(self) -> bool:
        return self._database.clock.monotonic() < self._deadline

    def _pause(self) -> None:
        self._database.clock.sleep(_PAUSE_SECONDS)

    def _one(self, name: str, **parameters: object) -> Any:
        row = self._connection.execute(query(name), parameters).fetchone()
        return None if row is None else row[0]

    def _rows(self, name: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query(name)).fetchall()
