"""Receipts: what a call needs to find out, after a lost answer, whether it was written.

On a direct connection the jobs themselves tell, once the session that sent them is gone: a large call knows its first
id and its transaction's time, a small one carries a random token in its first job.

A transaction pooler hides sessions, and may send a statement on long after its client has gone. There the token is a
row of its own, written with the jobs; whoever looks writes it too, and meets the call or stops it for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from psycopg import errors

from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.flow import Flow, Session
from penstock.storage.connection.queries import query
from penstock.storage.connection.sessions import SessionLingers, confirm_replicated, end_session
from penstock.storage.enqueue.job_group import RANGE

__all__ = ["NOT_NOTED", "Receipt", "find_or_end", "look_for", "newest_id", "newest_id_seen"]

_encode = msgspec.json.Encoder().encode
# A call that was looked for in vain is refused for longer than any pooler keeps a statement back.
VOID_SECONDS = 86_400.0
# One that was written can be asked for until its caller has given up, by clocks that may differ a little.
MARGIN_SECONDS = 60.0
# In the place of a receipt's note.
NOT_NOTED: dict[str, Any] = {"token": None, "kept_seconds": None}


@dataclass(slots=True)
class Receipt:
    """Of one try to write a call."""

    session: Session | None = None
    first_id: int = 0
    enqueued_at: datetime | None = None
    token: int = 0
    after: int = 0
    # Behind a pooler: how long the token is kept; None: it is no row of its own.
    kept_seconds: float | None = None
    # Whether the statement was sent, or the COMMIT: then only the server's own no says that nothing was written.
    is_sent: bool = False

    @property
    def note(self) -> dict[str, Any]:
        """What is written of it with the jobs."""
        if self.kept_seconds is None:
            return NOT_NOTED
        return {"token": self.token, "kept_seconds": self.kept_seconds, "first_id": self.first_id}

    def keep(self, seconds: float) -> None:
        """Have it written as a row of its own, for a caller that may ask so long."""
        self.kept_seconds = seconds + MARGIN_SECONDS


def look_for(database: Database, receipt: Receipt) -> int | None:
    """After a lost answer: the first id of the call, or None: it was not written, and will not be.

    Waits for the database, and for the old session to be gone.
    """

    def look(connection: Connection) -> int | None:
        found = find_or_end(connection, database, receipt)
        if receipt.kept_seconds is None:
            found = _find(connection, receipt)
        if found is not None:
            confirm_replicated(connection)
        return found

    return database.run(look, writes=False)


def find_or_end(connection: Connection, database: Database, receipt: Receipt) -> int | None:
    """See to it that what a lost answer was about is either written by now or never: the first id that its row tells.

    Without a row, the session that sent it is ended: the jobs tell.
    """
    if receipt.kept_seconds is not None:
        return _find_or_void(connection, receipt)
    end_session(connection, database, receipt.session)
    return None


def _find(connection: Connection, receipt: Receipt) -> int | None:
    if not receipt.token:
        sought = {"id": receipt.first_id, "enqueued_at": receipt.enqueued_at}
        row = connection.execute(query("was_written"), sought).fetchone()
        return receipt.first_id if row and row[0] else None
    token = _encode({"token": receipt.token}).decode()
    row = connection.execute(query("find_token"), {"after": receipt.after, "token": token}).fetchone()
    return None if row is None else int(row[0])


def _find_or_void(connection: Connection, receipt: Receipt) -> int | None:
    given = {"token": receipt.token, "kept_seconds": VOID_SECONDS}
    try:
        row = connection.execute(query("find_or_void_receipt"), given).fetchone()
    except errors.LockNotAvailable as error:
        raise SessionLingers("the call that was cut off is still being written") from error
    return None if row is None or row[0] is None else int(row[0])


def newest_id(connection: Connection) -> int:
    """An id below all that are drawn from now on."""
    row = connection.execute(query("newest_range")).fetchone()
    return int(row[0]) * RANGE if row else 0


def newest_id_seen(connection: Flow) -> int:
    """The same, of what this session has seen; the server is asked once."""
    if connection.newest_id is None:
        connection.newest_id = newest_id(connection)
    return connection.newest_id
