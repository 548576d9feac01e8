"""The way of history into a lake, as far as the database has a part in it.

    used ─► passed ─► sealed ─► taken ─► detached ─► parents kept ─► begun ─► written ─► verified, dropped ─► listed
            nothing   nobody    prune    waits for   what children              and read   in one transaction   in the
            is sent   can write lets it  those who   wait for stays             back       that holds the duty  manifest
            there     there     be       use it

Each arrow is a commit, and where a slice stands is read from the database alone: whoever comes after a crash goes on
from there. One archive runs at a time. A lock tells others to wait, and is gone when its connection is; what keeps an
archive that lost it from harm is the duty's number and token, which every act proves in its own transaction.
Idempotency keys are not forgotten: they outlive their jobs for as long as history would have been kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from penstock.errors import PenstockError
from penstock.model.job_state import OUTCOME
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import ConnectionLost
from penstock.storage.connection.queries import query
from penstock.storage.history.bulk import RangeInterval, split_interval
from penstock.storage.history.lake_writings import (
    Sum,
    Writing,
    WritingState,
    add_writing,
    mark_writings,
    read_writings,
    verify_writing,
)
from penstock.storage.upkeep.prune import LOCKED, detach
from penstock.storage.upkeep.tables_ahead import rotate_slice

__all__ = ["Archiving", "archiving", "read_lake_identity", "read_queue_names", "read_slices"]

_PAUSE_SECONDS = 0.05
_COUNTERS = 2
_IS_RUNNING = "another archive of this database is running; let it end, then run this one"
_LOST_DUTY = (
    "another archive of this database has taken over from this one, whose connection was lost; this one stops here, "
    "and the other goes on with what is left"
)


def read_lake_identity(connection: Connection) -> str:
    """By what a lake knows this database."""
    return str(connection.execute(query("identity")).fetchall()[0][0])


def read_slices(connection: Connection) -> list[int]:
    """The slices of history that are in the database, oldest first."""
    return [row[0] for row in connection.execute(query("slices"))]


def read_queue_names(connection: Connection) -> list[str]:
    """The names of all queues, which a lake makes folders of."""
    return [row[0] for row in connection.execute(query("queues_of_slice"))]


@contextmanager
def archiving(database: Database, wait_seconds: float, location: str = "") -> Iterator[Archiving]:
    """Take what has ended until now, and hold the duty of archiving for as long as the block lasts."""
    with database.connect("archive guard") as guard, database.connect("archive") as connection:
        with guard.transaction():
            _tell_others_to_wait(guard)
        if not database.is_pooled:
            connection.execute(query("be_impatient_in_session"))
        archive = Archiving(database, connection, wait_seconds)
        # Before the lock is taken for good: the transaction that has it would count among the possible writers.
        archive.close()
        try:
            with guard.transaction():
                _tell_others_to_wait(guard)
                archive.take_duty(location)
                archive.take()
                yield archive
                archive.end()
        except ConnectionLost:
            # The lock is lost with the guard's connection. The archive goes on without it, for its acts prove the duty
            # by its token; it has failed only if it did not come to its end.
            if not archive.has_ended:
                raise


def _tell_others_to_wait(guard: Connection) -> None:
    row = guard.execute(query("try_duty_of_archiving")).fetchone()
    if row is None or not row[1]:
        raise PenstockError(_IS_RUNNING)


class Archiving:
    """One run of the archive. `waits_for` names tables that others had locked for too long: the next run takes them."""

    def __init__(self, database: Database, connection: Connection, wait_seconds: float) -> None:
        self._database = database
        self._connection = connection
        self._deadline = database.clock.monotonic() + wait_seconds
        self._duty: tuple[int, str] = (0, "")
        self.waits_for: list[str] = []
        self.has_ended = False

    def take_duty(self, location: str) -> None:
        """From now on this archive alone acts."""
        try:
            with self._connection.transaction():
                self._connection.execute(query("be_impatient"))
                row = self._connection.execute(query("take_duty_of_archiving"), {"location": location}).fetchone()
        except LOCKED:
            # An archive that has lost its lock is in the middle of an act, and has the duty's row locked.
            raise PenstockError(_IS_RUNNING) from None
        assert row is not None  # noqa: S101
        self._duty = (row[0], row[1])

    @contextmanager
    def acting(self) -> Iterator[Connection]:
        """A transaction in which the duty is this archive's own, and stays so until it ends."""
        duty = dict(zip(("duty", "token"), self._duty, strict=True))
        try:
            with self._connection.transaction():
                if not self._connection.execute(query("prove_duty_of_archiving"), duty).fetchall():
                    raise PenstockError(_LOST_DUTY)
                yield self._connection
        except LOCKED as error:
            said = str(error).strip().splitlines()[0]
            raise PenstockError(f"the archive was kept from going on ({said}); run it again") from error

    def end(self) -> None:
        """Note that this archive was not killed."""
        with self.acting() as connection:
            connection.execute(query("end_duty_of_archiving"))
        self.has_ended = True

    def close(self) -> None:
        """Let what ends from now on go to a new slice, and note who may still write to the old one."""
        if self._query_value("has_ended"):
            while not self._try_unless_locked(lambda: rotate_slice(self._connection)) and self._has_time():
                pass
        self._connection.execute(query("note_writers"))

    def take(self) -> None:
        """Take every slice that nobody can write to any more, waiting a while for those of which that is not known."""
        while self._rows("unsealed_slices") and self._has_time():
            self._pause()
        self.waits_for += [f"finished_{row[0]}" for row in self._rows("unsealed_slices")]
        with self.acting() as connection:
            connection.execute(query("wait_for_duty_of_pruning"))
            connection.execute(query("take_slices"))

    def list_taken(self) -> list[int]:
        """The slices to put into the lake and let go of, oldest first; those of an earlier run as well."""
        return [row[0] for row in self._rows("taken_slices")]

    def set_apart(self, number: int) -> bool:
        """Detach a slice and keep what children wait for; False where somebody holds it."""
        table = f"finished_{number}"
        while not detach(self._database, self._connection, "finished", table, self._standing(number)):
            if not self._has_time():
                self.waits_for.append(table)
                return False
            self._pause()
        with self.acting() as connection:
            connection.execute(query("keep_parents"), {"number": number})
        return True

    def begin_writing(self, number: int, lake: str, location: str, name: str) -> Writing | None:
        """Enter that a slice is about to be written, under a name of its own in the lake; None where it is empty."""
        identity = uuid4()
        duty = self._duty[0]
        folder = f"{name}-{number:06}-{duty:06}-{identity.hex}"
        writing = Writing(str(identity), number, duty, lake, location, folder, "begun")
        with self.acting() as connection:
            if not self._query_value("has_rows_of_slice", number=number):
                return None
            add_writing(connection, writing)
        return writing

    def writings(self) -> list[Writing]:
        """What was ever written."""
        return read_writings(self._connection)

    def mark(self, writings: Iterable[Writing], state: WritingState) -> None:
        """Note what became of them."""
        with self.acting() as connection:
            mark_writings(connection, writings, state)

    def set_aside(self, writings: Iterable[Writing]) -> None:
        """Note what was found in a lake and is not of this database's past."""
        with self.acting() as connection:
            for writing in writings:
                add_writing(connection, writing)

    @contextmanager
    def abandoning(self, lake: str) -> Iterator[list[Writing]]:
        """What other archives began in a lake and did not verify, to be removed from it."""
        with self.acting() as connection:
            yield [
                Writing(*row)
                for row in connection.execute(query("abandon_writings"), {"lake": lake, "duty": self._duty[0]})
            ]

    def count(self, number: int) -> Sum:
        """Count a slice that stands alone, and take its checksum, by several connections at a time."""
        intervals = split_interval(self._connection, RangeInterval("finished", 0, 0, only=number), 4 * _COUNTERS)

        def count_interval(interval: RangeInterval) -> Sum:
            with self._database.connection() as connection:
                row = connection.execute(
                    query("checksum_slice"),
                    {"number": number, "low": interval.low, "high": interval.high},
                    prepare=False,
                ).fetchone()
            assert row is not None  # noqa: S101
            return Sum(*row)

        jobs, checksum = 0, 0
        with ThreadPoolExecutor(_COUNTERS, "penstock-count") as threads:
            for found in threads.map(count_interval, intervals):
                jobs += found.jobs
                checksum ^= found.checksum
        return Sum(jobs, checksum)

    def let_go(self, number: int, writing: Writing | None, retention: Mapping[str, float]) -> bool:
        """Drop a slice if it is what its writing holds, at this moment and with the duty; without one, if it is empty.

        False where somebody still reads it: then its writing counts as verified, and the next run drops it.
        """
        written = Sum(0, 0) if writing is None else writing.sum
        with self.acting() as connection:
            connection.execute(query("lock_slice"), {"number": number})
            counted = self.count(number)
            if counted != written:
                where = "the lake" if writing is None else f"{writing.folder} in {writing.location}"
                raise PenstockError(
                    f"slice {number} has {counted.jobs} jobs with checksum {counted.checksum:x}, and what was written "
                    f"to {where} has {written.jobs} with {written.checksum:x}; nothing was dropped, run the archive "
                    "again"
                )
            if writing is not None and not verify_writing(connection, writing):
                raise PenstockError(_LOST_DUTY)
            which = {"number": number, "days": min(retention[state] for state in OUTCOME)}
            while not self._try_unless_locked(lambda: self._drop(which)):
                if not self._has_time():
                    self.waits_for.append(f"finished_{number}")
                    return False
        return True

    def _drop(self, which: Mapping[str, float]) -> None:
        with self._connection.transaction():
            self._connection.execute(query("let_slice_go"), which)

    def slices(self) -> list[int]:
        """The slices that are in the database."""
        return read_slices(self._connection)

    def _standing(self, number: int) -> str:
        return str(self._query_value("standing_of_slice", number=number))

    def _try_unless_locked(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except LOCKED:
            self._pause()
            return False
        return True

    def _has_time(self) -> bool:
        return self._database.clock.monotonic() < self._deadline

    def _pause(self) -> None:
        self._database.clock.sleep(_PAUSE_SECONDS)

    def _query_value(self, name: str, **parameters: object) -> Any:
        row = self._connection.execute(query(name), parameters).fetchone()
        return None if row is None else row[0]

    def _rows(self, name: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query(name)).fetchall()
