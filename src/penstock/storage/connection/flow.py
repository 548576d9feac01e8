"""A flow: a connection that is watched while somebody waits for an answer on it.

A TCP connection can die without a word: a firewall forgot it, a machine is gone, a proxy acknowledges for the dead.
Then whoever waits on it waits for ever, and what the session holds stays locked, while every other connection is well.
So a flow knows since when an answer is waited for, and a watcher (the breaker of its database) asks about it on
another connection. After a third of a lease, five seconds at most:

    the session works, or waits for a lock    it is waited for
    it is idle, or gone                       the answer was lost: the socket is cut, the session ended
    it waits for the client                   the question was lost: the same, once a lease has passed

and a flow that carries a lease is cut after a lease, whatever its session does. Whatever cut a connection, the session
that it leaves behind is ended once it is seen to do nothing. Whoever waited hears that the
connection is lost, and goes on with a new one. Settings of the system (keepalives, `tcp_user_timeout`) are only an aid:
they see what the nearest proxy sees, and differ from system to system.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Generator
from datetime import datetime
from typing import Any, NamedTuple, Self, TypeVar
from weakref import WeakSet

import psycopg
from psycopg.abc import PQGen, Query
from psycopg.pq import TransactionStatus
from psycopg.rows import Row

from penstock.clock import system
from penstock.deadline import Deadline
from penstock.forking import let_go
from penstock.storage.connection.queries import query, texts_in
from penstock.storage.connection.schema_name import SCHEMA

__all__ = [
    "CommitUnsure",
    "DeadlinePassed",
    "Flow",
    "Flows",
    "Session",
    "SessionEnded",
    "has_done",
    "schema_of",
    "session_of",
]

RV = TypeVar("RV")
# The driver wakes so often to see whether the program was interrupted.
INTERVAL_SECONDS = 0.1
# Nobody is suspected before so long, however short the lease: a busy machine is not a dead one.
LEAST_SECONDS = 1.0
# When the time of a call is up, the server has so long to say what became of its statement.
GRACE_SECONDS = 0.5
# And nobody is trusted for longer, however long it is.
MOST_SECONDS = 5.0
# So long it is looked whether a session that was cut is gone.
LEFT_SECONDS = 60.0
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


class Flow(psycopg.Connection[tuple[Any, ...]]):
    """A connection of Penstock's own. Used by one thread at a time; the watcher only looks at it, and cuts it."""

    schema = SCHEMA

    # The server's side of it. A pooler's tells nothing.
    session: Session | None = None
    # Since when an answer is waited for, in monotonic seconds.
    waiting_since: float | None = None
    # After how long it is cut, whatever the server says.
    cut_after: float | None = None
    asked_at = 0.0
    # Told which session was left behind when it is cut.
    on_cut: Callable[[Session], None] | None = None
    # Of the call that it is lent to: who waits on it looks at the clock.
    deadline: Deadline | None = None
    # Whether a statement of that call has ended outside a transaction: what it wrote is committed.
    has_done = False
    # The newest id that it has seen on this server: another may be a copy of former days, with smaller ones.
    newest_id: int | None = None
    # Until when the server may say what became of a statement that was cancelled.
    _grace_until = 0.0
    _is_listening = False
    # Whether the server gave up waiting for its standby: it has committed, and only it may have what was.
    _is_alone = False

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
            # After a cancelled statement its transaction is rolled back, its pipeline ended.
            if self._grace_until > monotonic():
                return self._hear_out(deadline, gen, interval)
            self.waiting_since = None
            self.close()
            raise DeadlinePassed(f"{deadline.seconds:g} s were over before the next statement was sent")
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
            # An older libpq waits for a server that says nothing: in a thread that can be left behind.
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

    def heed(self, notice: psycopg.errors.Diagnostic) -> None:
        """Take in what the server remarks on the way."""
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


class Dead(NamedTuple):
    """A session that owed an answer for so long, and was ended."""

    process: int
    seconds: float


class SessionState(NamedTuple):
    """What a server process does, for how long it has, and what it waits for."""

    state: str | None
    wait_event_type: str | None
    seconds: float | None
    started_at: datetime

    @property
    def is_at_work(self) -> bool:
        """Whether it will answer: it computes, or waits for a lock or a disk. Where that is not shown, it may."""
        return self.state in (None, "disabled") or (self.state == "active" and self.wait_event_type != "Client")

    def owes(self, waited_seconds: float, lease_seconds: float) -> bool:
        """Whether nothing will come from a session that is not at work; what it has just sent may be on its way."""
        if self.state == "active":
            # It waits for its client: so it does, too, while something large travels slowly.
            return waited_seconds > max(lease_seconds, LEAST_SECONDS)
        return (self.seconds or 0.0) > LEAST_SECONDS


def schema_of(connection: psycopg.Connection[Any]) -> str:
    """The schema that a connection means; one that is not ours means the one that everybody does."""
    return connection.schema if isinstance(connection, Flow) else SCHEMA


def session_of(connection: psycopg.Connection[Any]) -> Session | None:
    """The server's side of a connection."""
    return connection.session if isinstance(connection, Flow) else None


def has_done(connection: psycopg.Connection[Any]) -> bool:
    """Whether something that a connection was lent for is done already, whatever becomes of the rest."""
    return isinstance(connection, Flow) and connection.has_done


class Flows:
    """All connections to one database."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._flows: WeakSet[Flow] = WeakSet()
        # Sessions whose connection was cut, and when: where the flow is dead they do not hear of it.
        self._left: dict[Session, float] = {}
        self._lock = threading.Lock()

    @property
    def has_left(self) -> bool:
        """Whether there may be sessions to end that nobody talks to any more."""
        return bool(self._left)

    @property
    def ask_seconds(self) -> float:
        """After how long without an answer the server is asked about a session."""
        return min(max(self._lease_seconds / 3, LEAST_SECONDS), MOST_SECONDS)

    def add(self, flow: Flow) -> None:
        """Watch a connection from now on."""
        flow.on_cut = self._note_left
        with self._lock:
            self._flows.add(flow)

    def cut_all(self) -> None:
        """The server hangs: nobody else would ever wake those who wait for it."""
        for flow in self._all():
            flow.cut()

    def leave_to_parent(self) -> None:
        """In a forked child: these are the parent's, which goes on with them."""
        for flow in self._flows:
            if not flow.closed:
                let_go(flow.fileno())

    def cut_overdue(self) -> None:
        """Cut what carries a lease and has had no answer for as long as that lasts."""
        now = monotonic()
        for flow in self._all():
            since = flow.waiting_since
            if since is not None and flow.cut_after is not None and now - since > flow.cut_after:
                flow.cut()

    def silent(self) -> list[Flow]:
        """Those on which an answer has been due for so long that the server is to be asked about them."""
        before = monotonic() - self.ask_seconds
        return [
            flow
            for flow in self._all()
            if (since := flow.waiting_since) is not None and since < before and flow.asked_at < before
        ]

    def find_out(self, connection: psycopg.Connection[tuple[Any, ...]]) -> list[Dead]:
        """Ask, on another connection, what the sessions do from which no answer comes; end those that do nothing.

        Where a pooler stands between nobody knows whose session is whose, and nothing is concluded.
        """
        asked: dict[int, tuple[Flow, float]] = {}
        for flow in self.silent():
            # Its user may close it meanwhile.
            with contextlib.suppress(psycopg.Error):
                if (since := flow.waiting_since) is not None:
                    asked[flow.info.backend_pid] = (flow, since)
        left = dict(self._left)
        if not asked and not left:
            return []
        pids = [*asked, *(session.pid for session in left)]
        rows = connection.execute(query("session_states"), {"pids": pids}).fetchall()
        states = {process: SessionState(*rest) for process, *rest in rows}
        if connection.info.backend_pid not in states:
            self._left.clear()
            return []
        now = monotonic()
        for session, cut_at in left.items():
            state = _state_of(session.pid, session, states)
            is_idle = state is not None and not state.is_at_work and (state.seconds or 0.0) > LEAST_SECONDS
            if is_idle and session.pid not in asked:
                self._end(connection, session)
            if state is None or is_idle or now - cut_at > LEFT_SECONDS:
                self._left.pop(session, None)
        dead: list[Dead] = []
        for process, (flow, since) in asked.items():
            state = _state_of(process, flow.session, states)
            if state is not None and state.is_at_work:
                flow.asked_at = now
            elif flow.waiting_since == since and (state is None or state.owes(now - since, self._lease_seconds)):
                flow.cut()
                # One that has not told when it began has done nothing yet that would have to be undone.
                if state is not None and flow.session is not None:
                    self._end(connection, flow.session)
                dead.append(Dead(process, now - since))
        return dead

    @staticmethod
    def _end(connection: psycopg.Connection[tuple[Any, ...]], session: Session) -> None:
        connection.execute(query("end_backend"), {"pid": session.pid, "started_at": session.started_at})

    def _note_left(self, session: Session) -> None:
        self._left[session] = monotonic()

    def _all(self) -> list[Flow]:
        with self._lock:
            return list(self._flows)


def _state_of(process: int, session: Session | None, states: dict[int, SessionState]) -> SessionState | None:
    """What a session does; None where it is gone, though its number may be another's by now."""
    state = states.get(process)
    is_another = state is not None and session is not None and state.started_at != session.started_at
    return None if is_another else state


def _ends_session(error: psycopg.Error) -> bool:
    """Whether no further statement can succeed on the connection, whatever class the error has."""
    if error.diag.severity_nonlocalized in ("FATAL", "PANIC"):
        return True
    if error.sqlstate == "0A000":
        return error.diag.source_function == CACHED_PLAN
    return error.sqlstate in ("26000", "42P05")
