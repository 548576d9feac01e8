"""A link: one thread's connection to a database, made anew whenever it is lost.

What may be repeated is asked over it until it is answered. How long that is tried is for the user of the engine to say:
a worker waits for ever, until it is told to stop; an executor worker of Spark for as long as a request may take.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from penstock.clock import system
from penstock.engine.throttled_log import ThrottledLog
from penstock.policy.claim_size import MOST_AHEAD
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import (
    DatabaseError,
    is_cancelled,
    is_lost,
    may_repeat,
    schema_mismatch,
    with_remedy,
)

__all__ = ["Link", "Patience", "wait_as_long_as_a_request"]

T = TypeVar("T")
log = logging.getLogger("penstock")

SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 1.0

# Given what went wrong, and for how many seconds it has been tried: what to raise now, or None to try again.
Patience = Callable[[DatabaseError, float], Exception | None]


def wait_as_long_as_a_request(database: Database) -> Patience:
    """Try for `request_timeout` seconds; then the database is unavailable."""

    def decide(error: DatabaseError, waited: float) -> Exception | None:
        return database.unavailable(error) if waited > database.request_timeout else None

    return decide


class Link:
    """Used by one thread; `asking_seconds` and `unheard_since` are read by others."""

    def __init__(self, database: Database, purpose: str, patience: Patience) -> None:
        self.database = database
        self._purpose = purpose
        self._patience = patience
        self._connection: Connection | None = None
        # The worker that acts for several holders over this link; None: its one holder has it for itself.
        self.shared_by: int | None = None
        # How many connections were opened so far: whatever holds for a session has to be set up again in the next.
        self.opened = 0
        # Since when the database has not answered.
        self._asking_since: float | None = None
        # Since when nothing at all was heard, from when the connection was lost.
        self.unheard_since: float | None = None
        # The most to ask for at once, after a statement took so long that it was cancelled.
        self._most: int | None = None
        self._throttled_log = ThrottledLog(log)

    @property
    def asking_seconds(self) -> float:
        """How long the database has not answered what it is being asked."""
        since = self._asking_since
        return 0.0 if since is None else system.monotonic() - since

    def open(self) -> Connection:
        """The connection."""
        if self._connection is None or self._connection.closed:
            self._connection = self.database.connect(self._purpose, carries_lease=True)
            self.opened += 1
            self.unheard_since = None
        return self._connection

    def share(self, worker: int) -> None:
        """Let several holders talk over it, for whom this worker acts; again when that one registers anew.

        The session is noted as this worker's, and ended when this one is declared dead: ended with one of its holders,
        it would be cut off for all of them.
        """
        self.shared_by = worker
        # Over the next connection everybody is introduced again.
        self.close()

    def try_once(self, act: Callable[[Connection], T]) -> T:
        """Do something once. After an error the caller has to find out whether it was done."""
        self._asking_since = self._asking_since or system.monotonic()
        answer = act(self.open())
        self._asking_since = self.unheard_since = None
        return answer

    def ask(self, act: Callable[[Connection], T]) -> T:
        """Do what may be repeated until it is answered, or patience is at an end."""
        began_at, pause = system.monotonic(), SHORTEST_PAUSE_SECONDS
        while True:
            try:
                return self.try_once(act)
            except DatabaseError as error:
                self.refuse_mismatch(error)
                if not may_repeat(error):
                    raise
                self.note_failed(error)
                self.close()
                given_up = self._patience(error, system.monotonic() - began_at)
                if given_up is not None:
                    raise given_up from error
                system.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def refuse_mismatch(self, error: DatabaseError) -> None:
        """Raise where an error says that the database's functions and tables are not those of this program."""
        if (explained := schema_mismatch(error, self.database.breaker.label)) is not None:
            raise explained from error

    def note_failed(self, error: BaseException, wanted: int = 0) -> None:
        """Keep in mind that the connection is lost; or log what is wrong, and ask for less the next time."""
        if is_lost(error):
            self.unheard_since = self.unheard_since or system.monotonic()
            return
        self._throttled_log.warning(
            "%s rolled back what the worker asked of it, and is asked again: %s",
            self.database.breaker.label,
            with_remedy(error),
        )
        if is_cancelled(error):
            self._most = max((wanted or self._most or MOST_AHEAD) // 2, 1)

    def note_given(self) -> None:
        """After an answer: a little more may be asked for the next time."""
        if self._most is not None:
            self._most = self._most + 1 if self._most < MOST_AHEAD else None

    def at_most(self, wanted: int) -> int:
        """How much of this to ask for at once."""
        return wanted if self._most is None else min(wanted, self._most)

    def close(self) -> None:
        """Give back the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
