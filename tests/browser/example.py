"""Figures of a report, made up by hand: two queues, ten minutes, every section with something to show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.spark.reporting.figures import (
    Age,
    Attempts,
    Cause,
    Figures,
    HotKey,
    KeySkew,
    LoadFigures,
    Moment,
    PartitionFigures,
    Percentiles,
    TaskFigures,
    Waiting,
    WaitingQueue,
    WorkerFigures,
)
from penstock.spark.reporting.key_time import KeyTime

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
MOMENTS = 60


def figures(name: str = "orders") -> Figures:
    """With that name for everything a user may name."""
    wait, run = Percentiles(1.25, 4.0, 75.0), Percentiles(0.012, 0.09, 0.31)
    start = NOW - timedelta(minutes=10)
    cause = f"ValueError: {name}"
    moments = [
        Moment(
            start + timedelta(seconds=10 * number),
            {"succeeded": 1_000 + 10 * number, "failed": number % 3} if number != 7 else {},
            wait if number != 7 else Percentiles(),
            run if number != 7 else Percentiles(),
            {cause: number % 3} if number % 3 and number != 7 else {},
        )
        for number in range(MOMENTS)
    ]
    outcomes = {
        "succeeded": sum(moment.outcomes.get("succeeded", 0) for moment in moments),
        "failed": sum(moment.outcomes.get("failed", 0) for moment in moments),
    }
    ended = sum(outcomes.values())
    return Figures(
        made_at=NOW,
        start=start,
        end=NOW,
        moment_seconds=10.0,
        outcomes=outcomes,
        retried=321,
        extra_attempts=654,
        wait=wait,
        run=run,
        moments=moments,
        tasks=[TaskFigures(name, "ship", ended, outcomes, 321, wait, run)],
        attempts=[Attempts(0, {"cancelled": 1}), Attempts(1, {"succeeded": ended - 321}), Attempts(6, {"failed": 320})],
        causes=[Cause(cause, outcomes["failed"], ["ship"], NOW)],
        attempt_causes=[Cause(cause, 654, ["ship"], NOW)],
        keys=[
            KeySkew(
                name,
                ended,
                900,
                0.4321,
                [HotKey(name, 9_876, 9_876 / ended, KeyTime(9_876, 0.001, 0.004, True))],
                [(0.0, 0.0), (0.5, 0.1), (1.0, 1.0)],
                advised_run=100,
            )
        ],
        partitions=[PartitionFigures(name, f"{name}__p{number}", ended // 4, 120.0) for number in range(4)],
        workers=[WorkerFigures(name, ended, 5, 480.0, start, NOW, [moment.jobs for moment in moments])],
        worker_count=1,
        loads=[LoadFigures(name, ended, outcomes, start, NOW)],
        waiting=Waiting(
            {"ready": 40, "scheduled": 2},
            7_200.0,
            [Age(1.0, {"ready": 40}), Age(None, {"scheduled": 2})],
            [WaitingQueue(name, {"ready": 40, "scheduled": 2}, 7_200.0)],
        ),
    )
