"""A flow: a connection that is watched while somebody waits for an answer on it, and keeps the deadline of its call.

It knows since when an answer is waited for, so that a dead one can be found out (see `flow_watch`), and which session
it has on the server. Whatever cut a connection, whoever waited on it hears that it is lost, and goes on with a new one.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Generator
from datetime import datetime
from typing import Any, NamedTuple, Self, TypeVar

import psycopg
from psycopg.abc import PQGen, PQGenConn, Query
from psycopg.pq import TransactionStatus
from psycopg.rows import Row

from penstock.clock import system
from penstock.deadline import Deadline
from penstock.forking import steps_between_forks
from penstock.storage.connection.queries import texts_in
from penstock.storage.connection.schema_name import SCHEMA

__all__ = [
    "CommitUnsure",
    "DeadlinePassed",
    "Flow",
    "ForkSafeConnection",
    "NeverSent",
    "Session",
    "SessionEnded",
    "has_done",
    "schema_of",
    "session_of",
]

RV = TypeVar("RV")
# The driver wakes so often to see whether the program was interrupted.
INTERVAL_SECONDS = 0.1
# When the time of a call is up, the server has so long to say what became of its statement.
GRACE_SECONDS = 0.5
# Where the server waits for its standbys, and where a prepared statement is checked against the tables it uses: the
# messages themselves are in the server's language.
SYNCHRONOUS_WAIT = "SyncRepWaitForLSN"
CACHED_PLAN = "RevalidateCachedQuery"
monotonic = system.monotonic
IDLE = TransactionStatus.IDLE


class SessionEnded(psycopg.OperationalError):
    """The server ended the session, or it is of no use any more: lost, whatever the SQLSTATE says.

    What was under way in it may have been committed.
    """

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.sqlstate = error.sqlstate


class Session(NamedTuple):
    """A server process, by when it began too: its number is given again."""

    pid: int
    started_at: datetime


class CommitUnsure(psycopg.OperationalError):
    """It was committed, and may be gone with the server: nobody is told before it is certain."""


class DeadlinePassed(psycopg.OperationalError):
    """The time of a call was up; where something had been sent, the server did not answer."""


class NeverSent(DeadlinePassed):
    """The time of a call was up before the next statement was sent."""


class _CursorInSchema(psycopg.Cursor[Row]):
    """Sends a query of the storage as it is in the schema of its connection."""

    def execute(self, query: Query, *args: Any, **named: Any) -> Self:
        return super().execute(self._in_schema(query), *args, **named)

    def executemany(self, query: Query, *args: Any, **named: Any) -> None:
        super().executemany(self._in_schema(query), *args, **named)

    def copy(self, statement: Query, *args: Any, **named: Any) -> Any:
        return super().copy(self._in_schema(statement), *args, **named)

    def _in_schema(self, query: Query) -> Query:
        return texts_in(schema_of(self.connection)).get(query, query) if isinstance(query, str) else query


class ForkSafeConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is made in steps into which no fork comes: OpenSSL holds locks of the whole process in them."""

    @classmethod
    def _connect_gen(cls, conninfo: str = "") -> PQGenConn[Self]:
        return steps_between_forks(super()._connect_gen(conninfo))


class Flow(ForkSafeConnection):
    """A connection of Penstock's own. Used by one thread at a time; the watcher only looks at it, and cuts it."""

    schema = SCHEMA

    # The server process that answers it; behind a pooler that says nothing, for the next statement may have another.
    session: Session | None = None
    # Since when an answer is waited for, in monotonic seconds.
    waiting_since: float | None = None
    # After how long it is cut, whatever the server says.
    cut_after: float | None = None
    asked_at = 0.0
    # Told which session was left behind when it is cut.
    on_cut: Callable[[Session], None] | None = None
    # Of the call that has checked it out: whoever waits for an answer stops waiting then.
    deadline: Deadline | None = None
    # Whether a statement of that call has ended outside a transaction: what it wrote is committed.
    has_done = False
    # An id below all that are drawn from now on. It is true of this session's server only: one restored from a backup
    # may draw smaller ones.
    newest_id: int | None = None
    # Until when the server may say what became of a statement that was cancelled.
    _grace_until = 0.0
    _is_listening = False
    # Whether the server gave up waiting for its standby: it has committed, and only it may have what was.
    _is_alone = False

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        # The names of the statements that its session keeps, of those that are sent without a cursor.
        self.prepared: set[str] = set()
        self._look: select.poll | None = None

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        """After a rollback the driver has the session forget whatever is prepared, ours too."""
        if name is None:
            self.prepared.clear()
        return super()._deallocate(name)

    def has_input(self) -> bool:
        """Whether the server has said something that nobody has read."""
        if self._look is None:
            self._look = select.poll()
            self._look.register(self.fileno(), select.POLLIN)
        return bool(self._look.poll(0))

    def use_schema(self, schema: str) -> None:
        """From here on mean that schema."""
        if schema != SCHEMA:
            self.schema = schema
            self.cursor_factory = _CursorInSchema

    def wait(self, gen: PQGen[RV], interval: float = INTERVAL_SECONDS, timeout: float | None = None) -> RV:
        """Every exchange with the server goes through here."""
        deadline = self.deadline
        if not self._is_listening:
            self.waiting_since = monotonic()
            if deadline is not None:
                return self._wait_until(deadline, gen, interval)
        return self._wait(gen, interval, timeout)

    def _wait_until(self, deadline: Deadline, gen: PQGen[RV], interval: float) -> RV:
        """Wait until the time of the call is up, and then for the server to hear that nobody does any more."""
        left = deadline.left()
        if left <= 0.0:
            # A statement was cancelled: the driver still rolls its transaction back, or ends its pipeline.
            if self._grace_until > monotonic():
                return self._hear_out(deadline, gen, interval)
            self.waiting_since = None
            self.close()
            raise NeverSent(f"{deadline.seconds:g} s were over before the next statement was sent")
        try:
            answer = self._wait(gen, interval, left)
        except psycopg.errors._WaitTimeout:
            return self._give_up(deadline, gen, interval)
        if self.pgconn.transaction_status == IDLE:
            self.has_done = True
        deadline.renew()
        return answer

    def _give_up(self, deadline: Deadline, gen: PQGen[RV], interval: float) -> RV:
        """Have the statement cancelled. A server that is well answers at once: with its end, or that it was."""
        self._grace_until = monotonic() + GRACE_SECONDS
        with contextlib.suppress(psycopg.Error):
            self._ask_to_cancel()
        return self._hear_out(deadline, gen, interval)

    def _hear_out(self, deadline: Deadline, gen: PQGen[RV], interval: float) -> RV:
        try:
            return self._wait(gen, interval, max(self._grace_until - monotonic(), 0.0))
        except psycopg.errors._WaitTimeout:
            self.cut()
            self.close()
            raise DeadlinePassed(f"no answer came within {deadline.seconds:g} s") from None

    def _ask_to_cancel(self) -> None:
        if psycopg.capabilities.has_cancel_safe():
            self.cancel_safe(timeout=GRACE_SECONDS / 2)
        else:
            # An older libpq has no timeout for this: a thread asks, and is left behind where the server says nothing.
            threading.Thread(target=self.pgconn.get_cancel().cancel, daemon=True).start()

    def _wait(self, gen: PQGen[RV], interval: float, timeout: float | None) -> RV:
        try:
            answer = super().wait(gen, interval, timeout)
            if self._is_alone:
                self.close()
                raise CommitUnsure(
                    "the server was told to wait no longer for its standby, which may not have the commit"
                )
            return answer
        except (psycopg.OperationalError, psycopg.InterfaceError):
            raise
        except psycopg.Error as error:
            if not _ends_session(error):
                raise
            self.close()
            raise SessionEnded(error) from error
        finally:
            self.waiting_since = None

    def note_remark(self, notice: psycopg.errors.Diagnostic) -> None:
        """Note where the server remarks, beside its answer, that it has given up waiting for its standby."""
        if notice.source_function == SYNCHRONOUS_WAIT:
            self._is_alone = True

    def notifies(
        self, *, timeout: float | None = None, stop_after: int | None = None
    ) -> Generator[psycopg.Notify, None, None]:
        """Wait for whoever notifies; no answer is due."""
        self._is_listening = True
        try:
            yield from super().notifies(timeout=timeout, stop_after=stop_after)
        finally:
            self._is_listening = False

    def cut(self) -> None:
        """From any thread: shut the socket, which wakes whoever waits on it."""
        with contextlib.suppress(OSError, psycopg.Error):
            if self.on_cut is not None and self.session is not None:
                self.on_cut(self.session)
            handle = socket.socket(fileno=os.dup(self.fileno()))
            try:
                handle.shutdown(socket.SHUT_RDWR)
            finally:
                handle.close()


def schema_of(connection: psycopg.Connection[Any]) -> str:
    """The schema that a connection means; one that is not ours means the one that everybody does."""
    return connection.schema if isinstance(connection, Flow) else SCHEMA


def session_of(connection: psycopg.Connection[Any]) -> Session | None:
    """The server's side of a connection."""
    return connection.session if isinstance(connection, Flow) else None


def has_done(connection: psycopg.Connection[Any]) -> bool:
    """Whether a statement of the call that has checked a connection out is committed, whatever becomes of the rest."""
    return isinstance(connection, Flow) and connection.has_done


def _ends_session(error: psycopg.Error) -> bool:
    """Whether no further statement can succeed on the connection, whatever class the error has."""
    if error.diag.severity_nonlocalized in ("FATAL", "PANIC"):
        return True
    if error.sqlstate == "0A000":
        return error.diag.source_function == CACHED_PLAN
    return error.sqlstate in ("26000", "42P05")
