"""The databases of a system, and the one catalogue they share.

A catalogue is the same on every shard and has one version. A change commits on the lead first, the shard of the lowest
number that is in use, and is then carried to the others; one that was away is caught up when it is back, by whoever
notices. Where the lead is down nothing can be changed, and everything can be read from any other shard.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from penstock.deadline import current_deadline, within
from penstock.errors import NotFound, PartitionUnavailable, SchemaMismatch
from penstock.forking import renew_in_children
from penstock.shards.membership import read_membership, read_shards
from penstock.shards.side_by_side import side_by_side
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import DatabaseDown, DatabaseError
from penstock.storage.connection.queries import query
from penstock.storage.connection.refusals import LockNotAvailable

__all__ = ["ANOTHER_LEADS", "Answers", "Databases"]

T = TypeVar("T")

# What penstock.next_version and penstock.note_permits raise on a shard that does not lead.
ANOTHER_LEADS = "PS004"


@dataclass(slots=True)
class Answers(Generic[T]):
    """What each shard said, by number, and why the others did not."""

    given: dict[int, T] = field(default_factory=dict)
    missing: dict[int, PartitionUnavailable] = field(default_factory=dict)

    def all(self) -> list[T]:
        """What every shard said, in order of number; raises where one did not."""
        for error in self.missing.values():
            raise error
        return list(self)

    def __iter__(self) -> Iterator[T]:
        return (self.given[number] for number in sorted(self.given))


class Databases:
    """The databases of an app, by number. Safe to use from any number of threads."""

    def __init__(self, databases: Sequence[Database], *, are_embedded: bool = False) -> None:
        self.are_embedded = are_embedded
        self._databases = {database.shard: database for database in databases}
        # The database, where there is no other: then nobody is asked in a thread, nor passed over.
        self.sole: Database | None = databases[0] if len(databases) == 1 else None
        # Those that the app has URLs for; the others were found by their addresses.
        self._given = frozenset(self._databases)
        self._drained: frozenset[int] = frozenset()
        self._lock = threading.Lock()
        renew_in_children(self, Databases._renew_after_fork)

    def _renew_after_fork(self) -> None:
        """In a forked child: nobody holds the lock."""
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Database]:
        return iter([self._databases[number] for number in sorted(self._databases)])

    def __contains__(self, number: int) -> bool:
        return number in self._databases

    @property
    def lead(self) -> Database:
        """Where the catalogue is changed."""
        return next((database for database in self if database.shard not in self._drained), next(iter(self)))

    def of(self, number: int) -> Database:
        """The shard of a number."""
        try:
            return self._databases[number]
        except KeyError:
            raise PartitionUnavailable(
                f"shard {number} is not among the databases of this app; give its URL too", shard=number
            ) from None

    @staticmethod
    def number_of(job_id: int) -> int:
        """The number of the shard on which a job was written."""
        return (job_id >> 10) & 1023

    def of_job(self, job_id: int) -> Database:
        """The shard on which a job was written."""
        number = self.number_of(job_id)
        if number not in self._databases and number in self._drained:
            raise NotFound(
                f"job {job_id} is on none of the shards; shard {number} wrote it and is drained: "
                "give its URL too, and what ended there is found"
            )
        if number not in self._databases and self.sole is not None:
            raise NotFound(f"job {job_id} does not exist: this database gives no such id; pass what enqueue returned")
        if number not in self._databases:
            raise NotFound(f"job {job_id} does not exist: there is no shard {number} to have written it")
        return self._databases[number]

    def add(self, database: Database) -> None:
        """Take in a shard that was entered in the catalogue."""
        with self._lock:
            self._databases = {**self._databases, database.shard: database}
            self.sole = database if len(self._databases) == 1 else None
        for each in self:
            each.join(each.shard, is_alone=False)

    @property
    def drained(self) -> frozenset[int]:
        """The shards that hold nothing any more."""
        return self._drained

    def note_drained(self, numbers: Sequence[int]) -> None:
        """Shards that hold nothing any more do not lead."""
        self._drained = frozenset(numbers)

    def learn_drained(self) -> frozenset[int]:
        """The same, as any catalogue that can be read has it now. An only database is not asked."""
        if self.sole is not None:
            return self._drained
        self.note_drained([entry.number for entry in self.read(read_shards) if entry.state == "drained"])
        return self._drained

    def drained_notice(self) -> str | None:
        """What to tell whoever gave only the URLs of drained shards; None where one in use is among them."""
        if not self._given or not self._given <= self._drained:
            return None
        numbers, verb = ", ".join(map(str, sorted(self._given))), "is" if len(self._given) == 1 else "are"
        return (
            f"shard {numbers} {verb} drained, and no URL of a shard in use is given: "
            "give one (app.shards or `penstock shards` lists them)"
        )

    def has_others(self, number: int | None) -> bool:
        """Whether there is a database beside that one, whichever it is, with which things go on while that is away."""
        return self.sole is None or number not in (None, self.sole.shard)

    def patience(self, seconds: float) -> float | None:
        """How long to wait for one that does not answer: so long for one of several, since the others have something to
        say; for an only one as long as a request may take.
        """
        return seconds if self.sole is None else None

    def share_of(self, count: int) -> int:
        """How many of so many fall to each of them, rounded up."""
        return -(-count // len(self._databases))

    def named(self, number: int, text: str) -> str:
        """A text that says by `{}` which one is meant; nothing where there is no other."""
        return text.format(number) if self.sole is None else ""

    def ask(
        self,
        database: Database,
        act: Callable[[Connection], T],
        *,
        timeout: float | None = None,
        waits: bool = False,
        writes: bool = True,
    ) -> T:
        """Ask one of them: where it is down an only one is waited for, one of several only if it `waits`."""
        return database.run(act, timeout=timeout, waits=waits or self.sole is not None, writes=writes)

    def each(self, act: Callable[[Connection], T], *, timeout: float | None = None, writes: bool = True) -> Answers[T]:
        """Ask every shard the same, side by side; those that are down are not waited for."""

        call = current_deadline()
        if call is not None and timeout is None and not writes and self.sole is None:
            # A slow shard may take half of the call's time: the rest is for what is done with the others' answers.
            timeout = max(call.left(), 0.0) / 2

        def ask(database: Database) -> T:
            return self.ask(database, act, timeout=timeout, writes=writes)

        return self.each_database(ask)

    def each_database(self, act: Callable[[Database], T]) -> Answers[T]:
        """The same with what is done to a database as a whole."""
        answers: Answers[T] = Answers()

        def ask(database: Database) -> None:
            try:
                if database.breaker.is_down:
                    raise database.unavailable(DatabaseDown(database.breaker.reason))
                answers.given[database.shard] = act(database)
                database.is_left_out = False
            except PartitionUnavailable as error:
                # A drained shard may be gone, and has nothing to say: it is not missing.
                if database.shard not in self._drained:
                    answers.missing[database.shard] = error
                    database.is_left_out = True

        if self.sole is not None:
            answers.given[self.sole.shard] = act(self.sole)
        else:
            side_by_side(ask, list(self))
        return answers

    def read(self, act: Callable[[Connection], T]) -> T:
        """Ask the catalogue of any shard that answers, the lead's if it can be."""
        return self._ask_any(act, writes=False)[1]

    def note(self, act: Callable[[Connection], T]) -> tuple[Database, T]:
        """Have something written down on any shard that answers, the lead if it can be; on which."""
        return self._ask_any(act, writes=True)

    def _ask_any(self, act: Callable[[Connection], T], *, writes: bool) -> tuple[Database, T]:
        with within(self.lead.request_timeout, self.lead.clock) as deadline:
            if self.sole is not None:
                return self.sole, self.sole.run(act, writes=writes)
            for database in sorted(self, key=lambda each: (each is not self.lead, each.shard)):
                if database.breaker.is_down or (writes and database.shard in self._drained):
                    continue
                try:
                    # No more than half of what is left: another one may answer.
                    return database, database.ask(act, timeout=min(3.0, deadline.left() / 2), writes=writes)
                except PartitionUnavailable:
                    continue
            return self.lead, self.lead.run(act, writes=writes)

    def change(self, act: Callable[[Connection], T]) -> T:
        """Change the catalogue: on the lead first, then on all that answer."""
        try:
            changed = self.lead.run(act)
        except DatabaseError as error:
            if error.sqlstate != ANOTHER_LEADS:
                raise
            self.find_lead()
            changed = self.lead.run(act)
        self.level()
        return changed

    def find_lead(self) -> None:
        """Learn which shards are drained, and so which one leads, from the newest catalogue there is."""
        told = self.each(lambda connection: (read_membership(connection).version, read_shards(connection)), timeout=3.0)
        if told.given:
            _, entries = max(told, key=lambda each: each[0])
            self.note_drained([entry.number for entry in entries if entry.state == "drained"])
            self.level()

    def level(self) -> Answers[int]:
        """Bring what is new in the lead's catalogue to every shard that answers; the version each has now."""
        if self.sole is not None:
            return Answers()
        lead = self.lead
        self._take_over(lead)
        told: dict[int, dict[str, Any]] = {}

        def take(database: Database) -> int:
            known = database.ask(read_membership, timeout=3.0).version
            newest = lead.ask(read_membership, timeout=3.0).version
            if database is lead or known == newest:
                return newest
            if known > newest:
                raise SchemaMismatch(
                    f"the catalogue of shard {database.shard} (version {known}) is newer than shard {lead.shard}'s "
                    f"(version {newest}), which leads: was shard {lead.shard} restored from an old backup? "
                    "see `penstock doctor`; nothing is changed meanwhile"
                )
            if known not in told:
                told[known] = lead.ask(lambda connection: _catalogue_since(connection, known), timeout=3.0)
            try:
                database.ask(lambda connection: _take_catalogue(connection, told[known]), timeout=10.0)
            except LockNotAvailable as error:
                raise PartitionUnavailable(
                    f"shard {database.shard} cannot learn what changed while a transaction there holds it: "
                    "end those that began above READ COMMITTED (see `penstock doctor`), then call again",
                    shard=database.shard,
                ) from error
            return newest

        return self.each_database(take)

    def _take_over(self, lead: Database) -> None:
        """The last thing a lead says is that it is drained: whoever leads after it has to have heard that first."""
        for former in (each for each in self if each.shard in self._drained and each.shard < lead.shard):
            if former.breaker.is_down:
                continue
            try:
                known = lead.run(read_membership, timeout=3.0).version
                if former.run(read_membership, timeout=3.0).version > known:
                    told = former.run(lambda connection: _catalogue_since(connection, known), timeout=3.0)  # noqa: B023
                    lead.run(lambda connection: _take_catalogue(connection, told), timeout=10.0)  # noqa: B023
            except PartitionUnavailable:
                # The new lead refuses changes (next_version) until it has taken this over.
                continue

    def close(self) -> None:
        """Give back every connection."""
        for database in self:
            database.close()


def _catalogue_since(connection: Connection, version: int) -> dict[str, Any]:
    row = connection.execute(query("catalogue_since"), {"version": version}).fetchone()
    assert row is not None  # noqa: S101
    return json.loads(row[0])  # type: ignore[no-any-return]


def _take_catalogue(connection: Connection, told: dict[str, Any]) -> None:
    connection.execute(query("take_catalogue"), {"told": json.dumps(told)})
