"""What an error that a call to a database ended with means for whoever called; `sqlstate` decides it by the code.

    lost      the database could not be reached, or the session broke: what was sent may have been done
    denial    the server said no: nothing of the transaction was done

Errors of our own are those that the driver has no name for.
"""

from __future__ import annotations

import re

import psycopg
from psycopg_pool import PoolTimeout

from penstock.errors import PenstockError, SchemaMismatch
from penstock.storage.connection.flow import SessionEnded
from penstock.storage.connection.sqlstate import ABOUT_DATA, ABOUT_SCHEMA, CANCELLED, Decision, decide, remedy

__all__ = [
    "ConnectionCut",
    "ConnectionLost",
    "DatabaseDown",
    "DatabaseError",
    "LockHeld",
    "StillInLine",
    "entry_remedy",
    "first_line",
    "is_about_data",
    "is_cancelled",
    "is_denial",
    "is_drained",
    "is_lost",
    "may_repeat",
    "refusal",
    "schema_mismatch",
    "stop_error",
    "with_remedy",
]

# What a broken connection or a server that is starting, stopping, full or read-only raises; repeating may help.
ConnectionLost = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    PoolTimeout,
)

INSUFFICIENT_PRIVILEGE = "42501"
_CREDENTIALS = "mend the user and the password of its URL, or let that user in"
_ENTRY_REMEDIES = {
    r"authentication failed|no password supplied|is not permitted to log in": _CREDENTIALS,
    r'role "[^"]*" does not exist': _CREDENTIALS,
    r"no pg_hba\.conf entry|pg_hba\.conf rejects": "let that user in from here, in its pg_hba.conf",
    r'database "[^"]*" does not exist': "create that database, or mend the name at the end of its URL",
    r"permission denied for database": "grant that user connect on the database",
    r"does not support SSL|certificate verify failed": "mend the sslmode of its URL, or its certificates",
}

# Whatever the driver raises; `is_lost` and `may_repeat` say what it means.
DatabaseError = psycopg.Error


class DatabaseDown(psycopg.OperationalError):
    """The database is known to be down; nobody tried."""


class ConnectionCut(psycopg.OperationalError):
    """The server has closed the connection before anything was sent."""


class StillInLine(psycopg.OperationalError):
    """The time of a call was up while it waited for other transactions of its app; nothing was sent."""


class LockHeld(psycopg.OperationalError):
    """A statement had not ended when the time of its call was up, and was cancelled: nothing of it was done.

    As a rule it waited for a lock that another transaction holds.
    """

    sqlstate = "55P03"


def is_lost(error: BaseException) -> bool:
    """Whether an error says that the database could not be reached, rather than that it said no."""
    return _decision(error) == "lost"


def may_repeat(error: BaseException) -> bool:
    """Whether a worker should simply try again: the database is away, or rolled the transaction back."""
    return is_lost(error) or _decision(error) == "repeat"


def is_denial(error: BaseException) -> bool:
    """Whether the server itself said no: an ERROR, after which the transaction is rolled back and the session goes on.

    FATAL is no such answer, nor is a broken connection: a COMMIT that was sent may have been done before either.
    """
    if isinstance(error, LockHeld):
        return True
    if not isinstance(error, psycopg.Error) or error.sqlstate is None:
        return False
    return error.diag.severity_nonlocalized == "ERROR" and error.sqlstate[:2] != "08"


def is_drained(error: BaseException) -> bool:
    """Whether the database says that nothing may be written to it any more: it is drained (penstock.end_writes)."""
    return getattr(error, "sqlstate", None) == "PS007"


def is_about_data(error: BaseException) -> bool:
    """Whether an error is about a value that a statement was given, or a row that it met: without that it may do."""
    if isinstance(error, psycopg.Error):
        return not is_lost(error) and (error.sqlstate or "").startswith(ABOUT_DATA)
    return isinstance(error, ValueError)  # The driver could not make sense of what it was sent.


def is_cancelled(error: BaseException) -> bool:
    """Whether a statement was cancelled, by somebody or by a role's statement_timeout: half as much may do."""
    return _decision(error) == "repeat" and getattr(error, "sqlstate", None) == CANCELLED


def schema_mismatch(error: BaseException, label: str) -> SchemaMismatch | None:
    """The error for whoever called, where a statement named what the schema has not: it is of another version."""
    sqlstate = getattr(error, "sqlstate", None) or ""
    if is_lost(error) or not sqlstate.startswith(ABOUT_SCHEMA):
        return None
    return SchemaMismatch(f"{label} has another version of the schema than this program: {with_remedy(error)}")


def stop_error(error: BaseException, label: str) -> PenstockError | None:
    """The error for whoever started a worker, where nothing can be done there until a person comes."""
    if _decision(error) != "stop":
        return None
    return schema_mismatch(error, label) or PenstockError(f"{label} cannot be worked on: {with_remedy(error)}")


def refusal(error: BaseException, label: str = "the database") -> PenstockError | None:
    """The error for whoever called, where a server said no in the driver's words; None where these are to be kept.

    Kept are those of a transaction that was rolled back or is of no more use: whose it is repeats it by them.
    """
    sqlstate = getattr(error, "sqlstate", None)
    if not isinstance(sqlstate, str) or sqlstate.startswith("25") or _decision(error) in ("lost", "repeat"):
        return None
    refuses = "does not allow it to this role" if sqlstate == INSUFFICIENT_PRIVILEGE else "refuses it"
    told = schema_mismatch(error, label) or PenstockError(f"{label} {refuses}: {with_remedy(error)}")
    for note in getattr(error, "__notes__", ()):
        told.add_note(note)
    return told


def with_remedy(error: BaseException) -> str:
    """What an error says, and what to do about it where there is something."""
    advice = remedy(getattr(error, "sqlstate", None) or "") or entry_remedy(error)
    return f"{first_line(error)}; {advice}" if advice else first_line(error)


def entry_remedy(error: BaseException) -> str | None:
    """What to do where a server answers, and does not let this program in; None where an error says something else.

    The driver has no code for it, so it is known by the server's words: in another language it reads as an outage.
    """
    said = str(error)
    return next((advice for words, advice in _ENTRY_REMEDIES.items() if re.search(words, said)), None)


def first_line(error: BaseException) -> str:
    """What an error says, in short."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _decision(error: BaseException) -> Decision:
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate is None:
        return "lost" if isinstance(error, ConnectionLost) else "refuse"
    # Whatever else it says, the session is gone.
    is_fatal = isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized in ("FATAL", "PANIC")
    return "lost" if is_fatal or isinstance(error, SessionEnded) else decide(sqlstate)
