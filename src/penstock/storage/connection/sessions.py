"""Sessions that were cut off: after a lost answer the server process may still be there, and may still commit."""

from __future__ import annotations

from penstock.deadline import current_deadline
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import ConnectionCut
from penstock.storage.connection.flow import Session, session_of
from penstock.storage.connection.queries import query

__all__ = ["GONE_SECONDS", "SessionLingers", "ask_nothing", "confirm_replicated", "end_session", "stop_turns"]

MOMENT_SECONDS = 0.5
GONE_SECONDS = 10.0


class SessionLingers(ConnectionCut):
    """The server process of a session that was cut off is still there: nobody can know yet what it does."""


def end_session(
    connection: Connection, database: Database, session: Session | None, patience: float = GONE_SECONDS
) -> None:
    """End the server process of a session that was cut off, so that it cannot commit any more; SessionLingers.

    It is given a moment to notice by itself, which is the rule. A pooler does not tell which process it was.
    """
    clock = database.clock
    started_at = clock.monotonic()
    while session is not None and not database.is_pooled and session != session_of(connection):
        given = {"pid": session.pid, "started_at": session.started_at}
        row = connection.execute(query("backend_is_alive"), given).fetchone()
        if row is None or not row[0]:
            return
        waited = clock.monotonic() - started_at
        call = current_deadline()
        if waited > patience or (call is not None and call.left() <= 0.1):
            raise SessionLingers(f"the session that was cut off, process {session.pid}, does not end")
        if waited > MOMENT_SECONDS:
            connection.execute(query("end_backend"), given)
        clock.sleep(0.02)


def stop_turns(
    connection: Connection, database: Database, worker: int, session: Session | None, *, has_numbers: bool
) -> int | None:
    """Let no turn of a worker that was sent so far be committed any more; what its turns bear from now on.

    Where a worker has a session of its own that is nothing: the one that was cut off is ended. A pooler hides sessions,
    and may send a turn on long after the worker has lost its answer. Where several programs may act for a worker, who
    comes next does not know the session of the one before, which is not that worker's alone.
    """
    end_session(connection, database, session)
    if not has_numbers:
        return None
    row = connection.execute(query("renew_turns"), {"worker": worker}).fetchone()
    return None if row is None else int(row[0])


def confirm_replicated(connection: Connection) -> None:
    """Commit once, so that what was found is as safe as what is committed, before anybody is told of it.

    A session that is ended while it waits for a synchronous standby makes its commit visible, though no standby has it.
    A later commit waits for all before it.
    """
    connection.execute(query("commit_nothing"))


def ask_nothing(connection: Connection) -> None:
    """Have the server answer: a connection on which nothing is said is not missed when it dies."""
    connection.execute(query("ask_nothing"))
