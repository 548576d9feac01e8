"""What each error of PostgreSQL means for whoever sent the statement, by SQLSTATE: the one place where that is decided.

    lost      the session, or the server, is not there for now: repeat on another connection, until the time is up
    repeat    the transaction was rolled back and may succeed the next time: repeat it
    stop      nothing can be done here until a person comes: end, with a sentence
    refuse    an answer: the statement was wrong, or is not allowed; whoever sent it deals with it

An error without a code comes from the driver: the connection broke. FATAL and PANIC end the session whatever their
code is: they are lost, too (`penstock.storage.connection.flow` makes an OperationalError of them). Codes that are not
here are judged by their class, the first two characters; a class that is not here is refused.
"""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["ABOUT_DATA", "ABOUT_SCHEMA", "CANCELLED", "DECISIONS", "Decision", "decide", "remedy"]

Decision = Literal["lost", "repeat", "stop", "refuse"]

DECISIONS: Final[dict[str, Decision]] = {
    # Connections. A protocol violation that leaves the session alive is somebody's mistake, and comes again.
    "08": "lost",
    "08P01": "refuse",
    # Features: but a prepared statement whose table has changed ("cached plan must not change result type") is lost
    # with its session, as is one that is not there, or there already, because a pooler changed sessions.
    "0A": "refuse",
    "26": "lost",
    "42P05": "lost",
    # Data that cannot be stored, and rules of the schema that it breaks.
    "21": "refuse",
    "22": "refuse",
    "23": "refuse",
    # Transactions: a server that takes no writes (for now: it may be a standby about to be promoted), and sessions that
    # were ended by a role's idle_in_transaction_session_timeout or transaction_timeout.
    "25": "refuse",
    "25006": "lost",
    "25P03": "lost",
    "25P04": "lost",
    # Who may connect; in a session that lives, what it may become.
    "28": "refuse",
    # Conflicts with others. Of 40003 it is not known whether it was committed.
    "40": "repeat",
    "40002": "refuse",
    "40003": "lost",
    # Names and rights: what the schema has not, or the role must not. The rest of the class is somebody's mistake.
    "3F": "stop",
    "42": "refuse",
    "42501": "stop",
    "42703": "stop",
    "42883": "stop",
    "42P01": "stop",
    # Resources: a full disk, no memory, no connections. 53400 is our own: the queue is full.
    "53": "lost",
    "53400": "refuse",
    # Limits of the server's programs: the same statement meets them again.
    "54": "refuse",
    # Objects that are not in the state for it; but those in use, and locks that were not had in time, become free.
    "55": "refuse",
    "55006": "repeat",
    "55P03": "repeat",
    # Operators: a statement that was cancelled, by somebody or by the role's statement_timeout, and sessions that were.
    "57": "lost",
    "57014": "repeat",
    # Errors of the system below PostgreSQL: an unreadable or unwritable file.
    "58": "lost",
    # A snapshot that was too old.
    "72": "repeat",
    # Errors inside PostgreSQL, such as a table that was dropped, or changed twice at once, while it was being opened.
    "XX": "repeat",
    # Damaged data and indexes stay as they are.
    "XX001": "stop",
    "XX002": "stop",
    # Raised by PL/pgSQL, and by our own functions: each has somebody who waits for it.
    "P0": "refuse",
    "PS": "refuse",
}

# What a statement that was cancelled ends with; whoever repeats it asks for half as much.
CANCELLED: Final = "57014"

# Classes and codes of what is wrong with the data that a statement was given or met. A worker whose statement was about
# many jobs finds out which of them it is, sets that one aside and goes on.
ABOUT_DATA: Final = ("22", "23", "XX001", "XX002")

# Codes and classes of what the schema has not: it is one of another version than the statement.
ABOUT_SCHEMA: Final = ("3F", "42703", "42883", "42P01")

_MIGRATE = (
    "call app.migrate(), or run `penstock migrate`, with this version of penstock, or start the version that the "
    "schema is for"
)

# What a person can do about errors that come again and again.
REMEDIES: Final[dict[str, str]] = {
    CANCELLED: (
        "it waited for a lock (pg_blocking_pids names who holds one), or takes longer than the statement_timeout of "
        "its role or database allows: end that transaction, or raise that"
    ),
    "55P03": "where its role or database has a lock_timeout, raise that; pg_blocking_pids names who holds the lock",
    "25P03": "raise the idle_in_transaction_session_timeout of its role or database",
    "25P04": "raise the transaction_timeout of its role or database",
    "53100": "make room on its disk",
    "57P05": "raise the idle_session_timeout of its role or database",
    "42501": "let the tables' owner grant its role what it needs, with `penstock grant KIND ROLE`",
    "42703": _MIGRATE,
    "42883": _MIGRATE,
    "42P01": _MIGRATE,
    "3F000": "call app.migrate(), or run `penstock migrate`",
    "XX001": "its data is damaged: restore it from a backup",
    "XX002": "an index of it is damaged: run `reindex`",
}


def remedy(sqlstate: str) -> str | None:
    """What to do about an error of this code, where there is something."""
    return REMEDIES.get(sqlstate)


def decide(sqlstate: str) -> Decision:
    """What to do about an error of this code."""
    return DECISIONS.get(sqlstate) or DECISIONS.get(sqlstate[:2], "refuse")
