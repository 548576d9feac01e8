"""What was archived, and is read from a lake alone: asked of the databases, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.spark.lake.consistency import another_lake
from penstock.storage.connection.database import Connection
from penstock.storage.history.archive import read_slices
from penstock.storage.history.lake_writings import Writing, read_writings

__all__ = ["ASK_SECONDS", "check_folder", "describe_known", "describe_unread", "read_known"]

ASK_SECONDS = 10.0


def describe_unread(databases: Any) -> str | None:
    """What history lacks without a lake, in a sentence; None where nothing was archived."""
    return describe_known(databases.each(read_known, timeout=ASK_SECONDS).given)


def check_folder(databases: Any, lake: str) -> None:
    """Raise where a lake cannot be the one that holds what was archived: that is in a folder here, and it is no folder.

    `history` finds out as much, once Spark runs, and more.
    """
    unread = _find_unread(databases.each(read_known, timeout=ASK_SECONDS).given)
    if unread and unread[-1].location.startswith("file:") and ":" not in lake and not Path(lake).is_dir():
        raise another_lake(unread, lake)


def read_known(connection: Connection) -> tuple[list[int], list[Writing]]:
    """The slices that a database has, and the writings that it knows."""
    return read_slices(connection), read_writings(connection)


def _find_unread(known: Mapping[int, tuple[Sequence[int], Sequence[Writing]]]) -> list[Writing]:
    """What has left the databases, and is in a lake alone."""
    return [
        each
        for slices, writings in known.values()
        for each in writings
        if each.state == "verified" and each.slice not in slices
    ]


def describe_known(known: Mapping[int, tuple[Sequence[int], Sequence[Writing]]]) -> str | None:
    """The same of what the databases told."""
    unread = _find_unread(known)
    if not unread:
        return None
    jobs = sum(each.jobs for each in unread)
    return (
        f"{jobs:,} job{'s' * (jobs != 1)} that ended {'is' if jobs == 1 else 'are'} in the lake {unread[-1].location} "
        "and left out here: name that lake to have all"
    )
