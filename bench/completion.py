"""Counting what is durably done, by what the database says: the total while it runs, the history afterwards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess

from bench.server import Connection

__all__ = ["Timeline", "completed", "history", "rate_between", "wait_for_completed"]

PATIENCE_SECONDS = 120.0
# When so many had been completed: (seconds, jobs so far).
Timeline = list[tuple[float, int]]


def completed(connection: Connection) -> int:
    """Jobs that succeeded and were settled."""
    return int(connection.execute("select coalesce(sum(completed), 0) from penstock.depth").fetchone()[0])


def wait_for_completed(connection: Connection, count: int, processes: Sequence[BaseProcess]) -> None:
    """Wait until so many are done. Refuses to wait for processes that are gone, or when nothing moves any more."""
    seen, moved_at = -1, time.monotonic()
    while (now_done := completed(connection)) < count:
        if any(process.exitcode not in (None, 0) for process in processes):
            raise RuntimeError("a process of this measurement ended too early; what it said stands above")
        if now_done != seen:
            seen, moved_at = now_done, time.monotonic()
        elif time.monotonic() - moved_at > PATIENCE_SECONDS:
            raise RuntimeError(f"{now_done} of {count} jobs are done, and none in {PATIENCE_SECONDS:g} s")
        time.sleep(0.02)


def history(connection: Connection) -> Timeline:
    """When jobs were completed, from their history; its times are the starts of the transactions that settled them."""
    rows = connection.execute(
        "select extract(epoch from finished_at)::double precision, sum(cardinality(positions))::int"
        "  from penstock.finished where outcome = 0 group by finished_at order by finished_at"
    ).fetchall()
    timeline: Timeline = []
    total = 0
    for at, jobs in rows:
        total += jobs
        timeline.append((at, total))
    return timeline


def rate_between(timeline: Timeline, first: int, last: int) -> float:
    """Jobs a second from when `first` were done until `last` were."""
    start_at, start = next(point for point in timeline if point[1] >= first)
    end_at, end = next(point for point in timeline if point[1] >= last)
    return (end - start) / (end_at - start_at)
