"""The figures that were noted minute by minute: the short history of queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from penstock.model.history import Minute, Percentiles
from penstock.policy.histogram import percentile, sum_counts
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = ["NotedMinutes", "add_up", "read_minutes"]

# What histograms tell comes last, and is not in the rows.
_NAMES = [each.name for each in fields(Minute)][:-2]
# These are no counts: of several databases' the greatest is taken.
_GREATEST = ("oldest_wait_seconds", "seconds")


class NotedMinutes(NamedTuple):
    """What one database noted of a queue: the figures of each minute; of waits and run times histograms, several of a
    minute.
    """

    minutes: list[Minute]
    histograms: list[tuple[datetime, list[int], list[int]]]


def read_minutes(
    connection: Connection, partitions: Mapping[int, Iterable[int]], minutes: int
) -> dict[int, NotedMinutes]:
    """What this database noted of queues, each given by its id with its partitions, in the last so many minutes."""
    asked = {
        "partitions": array_text(chain.from_iterable(partitions.values())),
        "queues": array_text(partitions),
        "minutes": minutes,
    }
    found = {queue_id: NotedMinutes([], []) for queue_id in partitions}
    for queue_id, *row in connection.execute(query("read_minutes"), asked):
        found[queue_id].minutes.append(Minute(**dict(zip(_NAMES, row, strict=True))))
    for queue_id, at, waits, runs in connection.execute(query("read_histograms"), asked):
        found[queue_id].histograms.append((at, waits, runs))
    return found


def add_up(noted: Iterable[NotedMinutes]) -> list[Minute]:
    """What several databases noted, minute by minute, the oldest first."""
    by_minute: dict[datetime, list[Minute]] = {}
    waits: dict[datetime, list[list[int]]] = {}
    runs: dict[datetime, list[list[int]]] = {}
    for each in noted:
        for minute in each.minutes:
            by_minute.setdefault(minute.minute, []).append(minute)
        for at, of_waits, of_runs in each.histograms:
            waits.setdefault(at, []).append(of_waits)
            runs.setdefault(at, []).append(of_runs)
    return [
        replace(
            _together(by_minute[at]),
            wait_seconds=_percentiles(waits.get(at, ())),
            run_seconds=_percentiles(runs.get(at, ())),
        )
        for at in sorted(by_minute)
    ]


def _together(noted: Sequence[Minute]) -> Minute:
    if len(noted) == 1:
        return noted[0]
    values: dict[str, Any] = {"minute": noted[0].minute}
    for name in _NAMES[1:]:
        given = [value for each in noted if (value := getattr(each, name)) is not None]
        values[name] = None if not given else max(given) if name in _GREATEST else sum(given)
    return Minute(**values)


def _percentiles(histograms: Sequence[Sequence[int]]) -> Percentiles | None:
    counts = sum_counts(histograms)
    p50, p95, p99 = (percentile(counts, share) for share in (0.5, 0.95, 0.99))
    if p50 is None or p95 is None or p99 is None:
        return None
    return Percentiles(count=sum(counts), p50=p50, p95=p95, p99=p99)
