"""The watch over all connections to one database: which of them are dead, and the sessions that cut ones leave behind.

A TCP connection can die without a word: a firewall forgot it, a machine is gone, a proxy acknowledges for the dead.
Then whoever waits on it waits for ever, and what the session holds stays locked, while every other connection is well.
So the breaker of a database asks, on another connection, about each flow on which an answer has been due for a third of
a lease, five seconds at most:

    the session works, or waits for a lock    it is waited for
    it is idle, or gone                       the answer was lost: the socket is cut, the session ended
    it waits for the client                   the question was lost: the same, once a lease has passed

A flow that carries a lease is cut after a lease, whatever its session does. The session that a cut connection leaves
behind is ended once it is seen to do nothing. Settings of the system (keepalives, `tcp_user_timeout`) are only an aid:
they see what the nearest proxy sees, and differ from system to system.
"""

from __future__ import annotations

import contextlib
import threading
from datetime import datetime
from typing import Any, NamedTuple
from weakref import WeakSet

import psycopg

from penstock.clock import system
from penstock.forking import let_go
from penstock.storage.connection.flow import Flow, Session
from penstock.storage.connection.queries import query

__all__ = ["DeadSession", "FlowWatch"]

# Nobody is suspected before so long, however short the lease: a busy machine is not a dead one.
LEAST_SECONDS = 1.0
# After so long the server is asked, however long the lease.
MOST_SECONDS = 5.0
# For so long after a cut it is looked whether the session has gone.
MOST_CUT_SECONDS = 60.0
monotonic = system.monotonic


class DeadSession(NamedTuple):
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

    def is_dead(self, waited_seconds: float, lease_seconds: float) -> bool:
        """Whether nothing will come from a session that is not at work; what it has just sent may be on its way."""
        if self.state == "active":
            # It waits for its client, as it does while something large travels slowly: it is given a lease.
            return waited_seconds > max(lease_seconds, LEAST_SECONDS)
        return (self.seconds or 0.0) > LEAST_SECONDS


class FlowWatch:
    """Over all connections to one database."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._flows: WeakSet[Flow] = WeakSet()
        # Sessions whose connection was cut, and when: over a dead connection the server does not hear of the cut.
        self._cut: dict[Session, float] = {}
        self._lock = threading.Lock()

    @property
    def has_silent(self) -> bool:
        """Whether the server is to be asked about any of them."""
        return bool(self._list_silent())

    @property
    def has_cut(self) -> bool:
        """Whether there may be sessions to end that nobody talks to any more."""
        return bool(self._cut)

    @property
    def ask_seconds(self) -> float:
        """After how long without an answer the server is asked about a session."""
        return min(max(self._lease_seconds / 3, LEAST_SECONDS), MOST_SECONDS)

    def add(self, flow: Flow) -> None:
        """Watch a connection from now on."""
        flow.on_cut = self._note_cut
        with self._lock:
            self._flows.add(flow)

    def cut_all(self) -> None:
        """The server hangs: nobody else would ever wake those who wait for it."""
        for flow in self._all():
            flow.cut()

    def leave_to_parent(self) -> None:
        """In a forked child: these are the parent's, which goes on with them."""
        for flow in self._flows:
            # One that was just closed has no socket to let go.
            with contextlib.suppress(psycopg.Error):
                let_go(flow.fileno())

    def cut_overdue(self) -> None:
        """Cut what carries a lease and has had no answer for as long as that lasts."""
        now = monotonic()
        for flow in self._all():
            since = flow.waiting_since
            if since is not None and flow.cut_after is not None and now - since > flow.cut_after:
                flow.cut()

    def _list_silent(self) -> list[Flow]:
        """Those on which an answer has been due for so long that the server is to be asked about them."""
        before = monotonic() - self.ask_seconds
        return [
            flow
            for flow in self._all()
            if (since := flow.waiting_since) is not None and since < before and flow.asked_at < before
        ]

    def end_dead(self, connection: psycopg.Connection[tuple[Any, ...]]) -> list[DeadSession]:
        """Ask, on another connection, what the sessions do from which no answer comes; end those that are dead.

        Where a pooler stands between nobody knows whose session is whose, and nothing is concluded.
        """
        asked: dict[int, tuple[Flow, float]] = {}
        for flow in self._list_silent():
            # Its user may close it meanwhile.
            with contextlib.suppress(psycopg.Error):
                if (since := flow.waiting_since) is not None:
                    asked[flow.info.backend_pid] = (flow, since)
        cut = dict(self._cut)
        if not asked and not cut:
            return []
        pids = [*asked, *(session.pid for session in cut)]
        rows = connection.execute(query("session_states"), {"pids": pids}).fetchall()
        states = {process: SessionState(*rest) for process, *rest in rows}
        if connection.info.backend_pid not in states:
            self._cut.clear()
            return []
        now = monotonic()
        for session, cut_at in cut.items():
            state = _state_of(session.pid, session, states)
            is_idle = state is not None and not state.is_at_work and (state.seconds or 0.0) > LEAST_SECONDS
            if is_idle and session.pid not in asked:
                self._end(connection, session)
            if state is None or is_idle or now - cut_at > MOST_CUT_SECONDS:
                self._cut.pop(session, None)
        dead: list[DeadSession] = []
        for process, (flow, since) in asked.items():
            state = _state_of(process, flow.session, states)
            if state is not None and state.is_at_work:
                flow.asked_at = now
            elif flow.waiting_since == since and (state is None or state.is_dead(now - since, self._lease_seconds)):
                flow.cut()
                # A session whose start is not known is still being set up: it has done nothing, and is left alone.
                if state is not None and flow.session is not None:
                    self._end(connection, flow.session)
                dead.append(DeadSession(process, now - since))
        return dead

    @staticmethod
    def _end(connection: psycopg.Connection[tuple[Any, ...]], session: Session) -> None:
        connection.execute(query("end_backend"), {"pid": session.pid, "started_at": session.started_at})

    def _note_cut(self, session: Session) -> None:
        self._cut[session] = monotonic()

    def _all(self) -> list[Flow]:
        with self._lock:
            return list(self._flows)


def _state_of(process: int, session: Session | None, states: dict[int, SessionState]) -> SessionState | None:
    """What a session does; None where it is gone, though its number may be another's by now."""
    state = states.get(process)
    is_another = state is not None and session is not None and state.started_at != session.started_at
    return None if is_another else state
