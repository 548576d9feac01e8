"""Sessions that were cut off: after a lost answer the server process may still be there, and may still commit."""

from __future__ import annotations

from penstock.storage.database import Connection, Database
from penstock.storage.queries import query

__all__ = ["end_session"]

MOMENT_SECONDS = 0.5
GONE_SECONDS = 10.0


def end_session(connection: Connection, database: Database, session: int) -> bool:
    """End the server process of a session that was cut off, so that it cannot commit any more; whether it is gone.

    It is given a moment to notice by itself, which is the rule. A pooler does not tell which process it was.
    """
    clock = database.clock
    started_at = clock.monotonic()
    while not database.is_pooled and session and connection.info.backend_pid != session:
        row = connection.execute(query("backend_is_alive"), {"pid": session}).fetchone()
        if row is None or not row[0]:
            return True
        waited = clock.monotonic() - started_at
        if waited > GONE_SECONDS:
            return False
        if waited > MOMENT_SECONDS:
            connection.execute(query("end_backend"), {"pid": session})
        clock.sleep(0.02)
    return True
