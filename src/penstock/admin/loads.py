"""Loads as a person handles them: how far they are, to pause, resume or cancel one as a whole."""

from __future__ import annotations

from penstock.model.limits import checked_count, checked_name
from penstock.model.load import Load
from penstock.storage import Database
from penstock.storage import load as storage

__all__ = ["cancel_load", "loads", "pause_load", "resume_load"]

MOST_LISTED = 1_000


def loads(database: Database, name: str | None = None, limit: int = 100) -> list[Load]:
    """The newest loads, or the one of that name."""
    checked_count("limit", limit, most=MOST_LISTED)
    asked = None if name is None else checked_name("load", name)
    return database.run(lambda connection: storage.read_loads(connection, asked, limit))


def pause_load(database: Database, name: str) -> None:
    """Take what waits of a load out of its queue."""
    database.run(lambda connection: storage.pause_load(connection, checked_name("load", name)))


def resume_load(database: Database, name: str) -> None:
    """Let it come back."""
    database.run(lambda connection: storage.resume_load(connection, checked_name("load", name)))


def cancel_load(database: Database, name: str) -> int:
    """End what has not started of a load; how many jobs."""
    return database.run(lambda connection: storage.cancel_load(connection, checked_name("load", name)))
