"""Why jobs fail, over all shards: dead letters by their cause, and how often attempts failed of which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from penstock.admin.answers import ask_everywhere, unavailable
from penstock.model.cause import Cause, FailureHistory, FailuresOfCause, cause_id
from penstock.model.checks import checked_count
from penstock.shards.databases import Databases
from penstock.storage import Connection
from penstock.storage.catalogue.queues import find_queue, read_queues
from penstock.storage.inspect.causes import (
    DeadOfCause,
    Trend,
    failures_of_queue,
    most_failed_causes,
    most_frequent_causes,
    period_of_now,
    read_causes,
    read_trends,
)

__all__ = ["MOST_CAUSES", "causes", "failures"]

MOST_CAUSES = 1_000
MOST_TOLD_APART = 50
# A day: so long they are kept.
MOST_MINUTES = 1_440
PERIOD = timedelta(minutes=5)


def causes(databases: Databases, queue: str | None, limit: int, queues: Collection[str] | None = None) -> list[Cause]:
    """The causes of dead letters, those of which there are most first.

    The most frequent of each shard are asked for, and then what all shards have of these.
    """
    checked_count("limit", limit, most=MOST_CAUSES)
    ids = _queue_ids(databases, queue, queues)
    found = ask_everywhere(databases, lambda connection: most_frequent_causes(connection, ids, limit))
    chosen = _most(found, limit)
    if not chosen:
        return []

    def look(connection: Connection) -> tuple[list[DeadOfCause], dict[int, Trend]]:
        return read_causes(connection, chosen), read_trends(connection, chosen)

    answers = list(ask_everywhere(databases, look))
    here: dict[int, list[DeadOfCause]] = {}
    for dead, _ in answers:
        for each in dead:
            here.setdefault(each.cause, []).append(each)
    told = [
        _together(given, [trends[cause] for _, trends in answers if cause in trends]) for cause, given in here.items()
    ]
    return sorted(told, key=lambda cause: (-cause.dead, cause.id))


def failures(databases: Databases, queue: str, minutes: int, most: int) -> FailureHistory:
    """How many attempts of a queue failed in each five minutes, of the most frequent causes and of all others."""
    checked_count("minutes", minutes, most=MOST_MINUTES)
    checked_count("causes", most, most=MOST_TOLD_APART)
    entry = databases.read(lambda connection: find_queue(connection, queue))
    last = databases.read(period_of_now)
    began_at = [last - PERIOD * ago for ago in reversed(range(-(-minutes // 5)))]
    since = began_at[0]
    found = list(ask_everywhere(databases, lambda connection: most_failed_causes(connection, entry.id, since, most)))
    named = {each.cause: each for given in found for each in given}
    chosen = _most(({each.cause: each.failed for each in given} for given in found), most)
    answers = ask_everywhere(databases, lambda connection: failures_of_queue(connection, entry.id, since, chosen))
    counted: Counter[tuple[int, datetime]] = Counter()
    for failed in answers:
        counted.update(failed)
    return FailureHistory(
        queue=entry.name,
        began_at=began_at,
        causes=[
            FailuresOfCause(
                id=cause_id(cause),
                task=named[cause].task,
                shape=named[cause].shape,
                failed=[counted[cause, began] for began in began_at],
            )
            for cause in chosen
        ],
        others=[counted[0, began] for began in began_at],
        unavailable=unavailable(answers),
    )


def _most(counted: Iterable[Mapping[int, int]], limit: int) -> list[int]:
    """The causes that have most on all shards together."""
    together: Counter[int] = Counter()
    for given in counted:
        together.update(given)
    return sorted(together, key=lambda cause: (-together[cause], cause))[:limit]


def _queue_ids(databases: Databases, queue: str | None, queues: Collection[str] | None) -> list[int] | None:
    """The queues that are meant; None: all."""
    if queue is not None:
        found = [databases.read(lambda connection: find_queue(connection, queue))]
        return [each.id for each in found if queues is None or each.name in queues]
    if queues is None:
        return None
    return [each.id for each in databases.read(read_queues) if each.name in queues]


def _together(here: Sequence[DeadOfCause], trends: Iterable[Trend]) -> Cause:
    """What the shards have of one cause."""
    newest = max(here, key=lambda each: (each.last_at, each.job_id))
    counted = [Trend.empty(), *trends]
    return Cause(
        id=cause_id(newest.cause),
        queue=newest.queue,
        task=newest.task,
        shape=newest.shape,
        dead=sum(each.dead for each in here),
        first_at=min(each.first_at for each in here),
        last_at=newest.last_at,
        job_id=newest.job_id,
        last_hour=[sum(each) for each in zip(*(trend.last_hour for trend in counted), strict=True)],
        last_day=[sum(each) for each in zip(*(trend.last_day for trend in counted), strict=True)],
    )
