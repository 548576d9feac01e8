"""What a REPL shows of an answer is short, however much is in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.model import Failure, Job, PartitionStats, State, Stats
from penstock.model.rules import QueueRules
from penstock.model.short_repr import MOST_CHARACTERS
from penstock.spark.advising.advice import Weights, build_advice
from penstock.spark.lake.archive import Archived
from penstock.spark.reporting.figures import Figures, Moment
from penstock.spark.reporting.report import Report

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
FAILURE = Failure(attempt=1, error="ValueError: on purpose\n" * 400, at=NOON, worker="w")


def test_a_repr_has_what_was_given_and_not_the_defaults() -> None:
    job = Job(id=7, queue="q", partition="q", task="t", args={"n": 1}, state=State.READY, enqueued_at=NOON)
    assert repr(job) == (
        "Job(id=7, queue='q', partition='q', task='t', args={'n': 1}, state=<State.READY: 'ready'>, "
        "enqueued_at=datetime.datetime(2026, 11, 16, 12, 0, tzinfo=datetime.timezone.utc))"
    )
    assert repr(Stats(queue="q", dead=2, paused=False)) == "Stats(dead=2, queue='q')"
    assert repr(Archived(rows=5, files=1)) == "Archived(rows=5, files=1)"


@pytest.mark.parametrize(
    "value",
    [
        FAILURE,
        Job(
            id=7,
            queue="q" * 200,
            partition="q" * 200,
            task="t",
            args={f"a{n}": "x" * 1_000 for n in range(200)},
            state=State.FAILED,
            error=FAILURE.error,
            failures=[FAILURE] * 25,
            enqueued_at=NOON,
            progress=[[["deep"] * 100] * 100] * 100,
        ),
        Stats.of("q", [PartitionStats(name=f"q__p{n}", shard="1", dead=n) for n in range(64)]),
        Figures(made_at=NOON, moments=[Moment(NOON + timedelta(seconds=n)) for n in range(500)]),
        Report(Path("/tmp/report.html"), Figures(made_at=NOON, moments=[Moment(NOON)] * 500)),
        build_advice("q", 1, QueueRules(order="key"), Weights(64, 0, 64, "k", 1, {n: [1] * n for n in range(1, 65)})),
        Archived(slices=[(1, n) for n in range(1_000)], rows=1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_repr_is_short(value: object) -> None:
    assert repr(value).startswith(f"{type(value).__name__}(")
    assert len(repr(value)) <= MOST_CHARACTERS
