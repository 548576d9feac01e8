"""G1, G2, G3, G11: behind a transaction pooler an answer is lost, and what was sent arrives after somebody looked."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest
from tests.fault.crew import build
from tests.fault.pooler import Loss, Pooler
from tests.fault.stage import MakeStage, Stage, eventually, is_stopped, times
from tests.fault.tally import brought
from tests.system.meeting import Meeting

from penstock import App

LOSSES: list[Loss] = ["late", "under way"]


@pytest.fixture
def pooler(database_url: str) -> Iterator[Pooler]:
    pooler = Pooler(database_url)
    yield pooler
    pooler.close()


@pytest.fixture
def pooled_stage(database_url: str, make_stage: MakeStage) -> Stage:
    return make_stage(database_url, partitions=3, ordered=4, lease=15.0)


@pytest.fixture
def distant(pooled_stage: Stage, pooler: Pooler) -> Iterator[App]:
    """The producers' app, through the pooler."""
    app = build(msgspec.structs.replace(pooled_stage.orders, url=pooler.url))
    yield app
    app.close()


def test_a_pooler_is_known_by_the_process_number_it_makes_up(pooled_stage: Stage, distant: App) -> None:
    pooled_stage.enqueue("plain", 1, distant)
    pooled_stage.enqueue("plain", 150, distant)
    assert all(database.is_pooled for database in distant.databases)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["single", "few", "copied", "keys", "family"])
def test_g1_g3_g11_a_call_is_written_once_though_it_arrives_after_it_was_looked_for(
    pooled_stage: Stage, pooler: Pooler, distant: App, kind: str, loss: Loss
) -> None:
    stage = pooled_stage
    calls = {
        "single": lambda: stage.enqueue("plain", 1, distant),
        "few": lambda: stage.enqueue("plain", 5, distant),
        "copied": lambda: stage.enqueue("plain", 150, distant),
        # So many that they never are all of one partition, which a small call writes by one statement.
        "keys": lambda: stage.enqueue_steps("ordered", 40, 12, app=distant),
        "family": lambda: stage.enqueue_family(distant),
    }
    calls[kind]()

    # What a call is committed with: small ones are one statement, large ones end with one of these.
    small = b'"label"'
    last = {"single": small, "few": small, "family": b"penstock.block_jobs("}.get(kind, b"penstock.make_visible(")

    told: list[int] = []
    for _ in range(times(5, 10)):
        lost, ended = pooler.lost, pooler.ended
        pooler.lose_next(loss, lambda chunk: last in chunk)
        told += calls[kind]()
        assert pooler.lost == lost + 1
        pooler.send_on()
        eventually(lambda: pooler.ended > ended, "what was late has arrived")  # noqa: B023
        brought("answer lost behind a pooler")
    stored = stage.snapshot().labels
    assert Counter(stored.values()).most_common(1)[0][1] == 1
    assert set(told) <= stored.keys()
    stage.verdict().require("a settle")


@pytest.mark.parametrize("loss", LOSSES)
def test_g1_g3_g5_calls_that_were_written_together_are_written_once_though_they_arrive_after_they_were_looked_for(
    pooled_stage: Stage, pooler: Pooler, distant: App, loss: Loss
) -> None:
    stage = pooled_stage
    stage.enqueue("plain", 1, distant)
    told: list[int] = []
    for _ in range(times(5, 10)):
        lost, ended = pooler.lost, pooler.ended
        pooler.lose_next(loss, lambda chunk: b"penstock.enqueue_merged(" in chunk)
        with Meeting(distant) as meeting:
            calls = [meeting.call(stage.enqueue, "plain", n, distant) for n in (1, 1, 3)]
            calls += [meeting.call(stage.enqueue_steps, "ordered", 1, 12, app=distant) for _ in range(4)]
        told += [job for call in calls for job in call.result()]
        assert pooler.lost == lost + 1
        pooler.send_on()
        eventually(lambda: pooler.ended > ended, "what was late has arrived")  # noqa: B023
        brought("answer lost behind a pooler")
    stored = stage.snapshot().labels
    assert Counter(stored.values()).most_common(1)[0][1] == 1
    assert set(told) <= stored.keys()
    stage.verdict().require("a settle")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("task", ["plain", "ordered"])
def test_g2_g3_a_turn_that_arrives_after_its_worker_looked_claims_nothing(
    pooled_stage: Stage, pooler: Pooler, task: str, loss: Loss
) -> None:
    """Otherwise jobs are leased to a worker that lives and does not know them, and wait for ever."""
    stage = pooled_stage
    worker = stage.worker(url=pooler.url, concurrency=4)

    def enqueue() -> None:
        stage.enqueue("plain", 8) if task == "plain" else stage.enqueue_steps("ordered", 8, 12, failing=0)

    enqueue()
    eventually(lambda: stage.snapshot().is_drained, "the worker is at work")
    for _ in range(times(5, 10)):
        lost, ended, settled = pooler.lost, pooler.ended, stage.settles()
        pooler.lose_next(loss, is_turn if task == "plain" else is_choice)
        enqueue()
        eventually(lambda: pooler.lost > lost, "a turn has lost its answer")  # noqa: B023
        # The worker has looked what became of it, and goes on.
        eventually(lambda: stage.settles() >= settled + 8, "the jobs are done all the same")  # noqa: B023
        os.kill(worker.pid, signal.SIGSTOP)
        eventually(lambda: is_stopped(worker.pid), "the worker stands still")
        enqueue()
        pooler.send_on()
        eventually(lambda: pooler.ended > ended, "what was late has arrived")  # noqa: B023
        os.kill(worker.pid, signal.SIGCONT)
        eventually(lambda: stage.snapshot().is_drained, "everything was done by the worker that lives")
        brought("answer lost behind a pooler")
    stage.verdict().require("a settle")


def is_turn(chunk: bytes) -> bool:
    return b"penstock.claim(" in chunk


def is_choice(chunk: bytes) -> bool:
    return b"penstock.lease_chosen(" in chunk
