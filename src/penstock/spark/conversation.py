"""The conversation of a worker that Spark runs with the database: settle all that it held, claim what comes next.

Whoever has one settles everything it holds before it gets anything else. So after a lost answer nothing has to be
guessed: what was settled is not held any more, and whatever is held now was claimed unheard of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from penstock.clock import system
from penstock.storage import workers
from penstock.storage.database import Connection, Database, DatabaseError, may_repeat, mismatch
from penstock.storage.exchange import ClaimWish, Turn, exchange, held_leases, settled_by
from penstock.storage.flow import Session, session_of
from penstock.storage.owner import Choice
from penstock.storage.sessions import confirm_replicated, stop_turns
from penstock.storage.settle import End, Succeeded

__all__ = ["Conversation"]

T = TypeVar("T")


class Conversation:
    """Used by one thread, on one connection."""

    def __init__(self, database: Database, worker: int, name: str) -> None:
        self._database = database
        self._worker = worker
        self.name = name
        self._connection: Connection | None = None
        # Whether nobody knows if a turn was committed, and its session; none: it was on another server.
        self._is_in_doubt = False
        self._in_doubt: Session | None = None
        # What its turns bear behind a pooler.
        self._turn_number: int | None = None

    @property
    def is_in_doubt(self) -> bool:
        """Whether the database went away in a turn: the next exchange, with the same ends, finds out what it did."""
        return self._is_in_doubt

    def doubt(self) -> None:
        """Another server answers: with the next exchange it is looked up what is held there, as after a lost answer."""
        self._is_in_doubt = True

    def exchange(
        self,
        succeeded: Sequence[Succeeded],
        ends: Sequence[End],
        attempts: Callable[[], Mapping[tuple[int, int], tuple[int, int]]],
        wish: ClaimWish | None,
        choices: Sequence[Choice] = (),
        freed: Sequence[int] = (),
        *,
        on_lost: Callable[[], None] = lambda: None,
    ) -> Turn:
        """A turn, done once however often the answer is lost. `attempts`: by lease and place, job and attempt."""
        if not self._is_in_doubt:
            connection = self.surely(lambda connection: connection)
            session = session_of(connection)
            try:
                number = self._turn_number
                return exchange(connection, self._worker, self.name, succeeded, ends, wish, choices, freed, number)
            except DatabaseError as error:
                if (told := mismatch(error, self._database.breaker.label)) is not None:
                    raise told from error
                if not may_repeat(error):
                    raise
            self._is_in_doubt, self._in_doubt = True, session
            on_lost()
        session = self._in_doubt

        def repeat(connection: Connection) -> Turn:
            # Until it cannot commit any more its claim could come after the look at what is held.
            number = self._turn_number = stop_turns(connection, self._database, self._worker, session)
            turn = exchange(connection, self._worker, self.name, succeeded, ends, None, freed=freed, number=number)
            if turn.lost:
                turn.lost = self._not_settled(connection, turn.lost, attempts())
            turn.leases = sorted(held_leases(connection, self._worker), key=lambda lease: lease.id)
            return turn

        turn = self.surely(repeat)
        self._is_in_doubt, self._in_doubt = False, None
        return turn

    def not_settled(
        self, lost: Sequence[tuple[int, int]], attempts: Mapping[tuple[int, int], tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Of what was not held, that whose end this worker has not written before."""
        return self.surely(lambda connection: self._not_settled(connection, lost, attempts))

    def surely(self, act: Callable[[Connection], T]) -> T:
        """Do what may be repeated, while the database is away for no longer than a request may take."""
        deadline = system.monotonic() + self._database.request_timeout
        pause = 0.01
        while True:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = self._database.connect("conversation", carries_lease=True)
                    if self._database.is_pooled:
                        self._turn_number = stop_turns(self._connection, self._database, self._worker, None)
                    else:
                        workers.note_session(self._connection, self._worker)
                return act(self._connection)
            except DatabaseError as error:
                if (told := mismatch(error, self._database.breaker.label)) is not None:
                    raise told from error
                if not may_repeat(error):
                    raise
                self.close()
                if system.monotonic() > deadline:
                    raise self._database.unavailable(error) from error
                system.sleep(pause)
                pause = min(pause * 2, 1.0)

    def close(self) -> None:
        """Give back the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _not_settled(
        self,
        connection: Connection,
        lost: Sequence[tuple[int, int]],
        attempts: Mapping[tuple[int, int], tuple[int, int]],
    ) -> list[tuple[int, int]]:
        confirm_replicated(connection)
        settled = settled_by(connection, self.name, [attempts[part] for part in lost])
        return [part for part in lost if attempts[part] not in settled]
