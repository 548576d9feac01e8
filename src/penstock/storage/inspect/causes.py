"""Why attempts failed on this database, and which dead letters failed for the same reason.

What was folded and what the tally holds are added up: the figures are those of the last commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import NamedTuple

from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.upkeep.sweep import fold_causes_if_long

__all__ = [
    "DeadOfCause",
    "FailedOfCause",
    "Trend",
    "failures_of_queue",
    "most_failed_causes",
    "most_frequent_causes",
    "period_of_now",
    "read_causes",
    "read_trends",
]

HOURS, PERIODS_OF_AN_HOUR = 24, 12


class DeadOfCause(NamedTuple):
    """The dead letters of a cause on one database."""

    cause: int
    queue: str
    task: str
    shape: str
    dead: int
    first_at: datetime
    last_at: datetime
    job_id: int


class FailedOfCause(NamedTuple):
    """How many attempts failed of a cause on one database."""

    cause: int
    failed: int
    task: str
    shape: str


class Trend(NamedTuple):
    """How many attempts failed of a cause, the oldest first: in each hour of a day, in each five minutes of an hour."""

    last_day: list[int]
    last_hour: list[int]

    @classmethod
    def empty(cls) -> Trend:
        """Nothing failed."""
        return cls([0] * HOURS, [0] * PERIODS_OF_AN_HOUR)


def most_frequent_causes(connection: Connection, queues: Collection[int] | None, limit: int) -> dict[int, int]:
    """The causes that most dead letters have, of some queues or of all, and how many that is."""
    fold_causes_if_long(connection)
    asked: dict[str, object] = {"limit": limit}
    if queues is None:
        return dict(connection.execute(query("most_frequent_causes"), asked).fetchall())
    asked["queues"] = array_text(sorted(queues))
    return dict(connection.execute(query("most_frequent_causes_of_queues"), asked).fetchall())


def read_causes(connection: Connection, causes: Iterable[int]) -> list[DeadOfCause]:
    """Those of these causes that dead letters have here."""
    rows = connection.execute(query("read_causes"), {"ids": array_text(causes)})
    return [DeadOfCause._make(row) for row in rows]


def read_trends(connection: Connection, causes: Iterable[int]) -> dict[int, Trend]:
    """How often attempts failed of these causes; those of which none did are left out."""
    trends: dict[int, Trend] = {}
    for cause, hours, periods, failed in connection.execute(query("read_trends"), {"ids": array_text(causes)}):
        trend = trends.setdefault(cause, Trend.empty())
        # A clock that was put back finds what it has noted of a time to come.
        if 0 <= hours < HOURS:
            trend.last_day[-1 - hours] += failed
        if periods is not None and periods >= 0:
            trend.last_hour[-1 - periods] += failed
    return trends


def period_of_now(connection: Connection) -> datetime:
    """When the five minutes began that it is."""
    row = connection.execute(query("period_of_now")).fetchone()
    assert row is not None  # noqa: S101
    began_at: datetime = row[0]
    return began_at


def most_failed_causes(connection: Connection, queue: int, since: datetime, limit: int) -> list[FailedOfCause]:
    """The causes of which most attempts of a queue failed since an instant."""
    fold_causes_if_long(connection)
    asked = {"queue": queue, "since": since, "limit": limit}
    return [FailedOfCause._make(row) for row in connection.execute(query("most_failed_causes"), asked)]


def failures_of_queue(
    connection: Connection, queue: int, since: datetime, causes: Iterable[int]
) -> dict[tuple[int, datetime], int]:
    """How many attempts of a queue failed, by cause and five minutes; of all other causes together with 0 as theirs."""
    asked = {"queue": queue, "since": since, "ids": array_text(causes)}
    rows = connection.execute(query("failures_of_queue"), asked)
    return {(cause, began_at): failed for cause, began_at, failed in rows}
