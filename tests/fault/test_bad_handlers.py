"""G2: whatever a handler does, its job ends, its worker or the next goes on, and its neighbours are done."""

from __future__ import annotations

import pytest
from tests.fault.crew import MISDEEDS
from tests.fault.stage import Stage, eventually
from tests.fault.tally import brought
from tests.judge.snapshot import Snapshot

from penstock.cli.process_exit import STUCK_STATUS

# These end the whole process of a handler that runs in a thread or on the loop.
DEADLY = {"exit at once", "segfault", "kill"}
TASKS = {"bad": "a thread", "bad_lane": "a lane", "bad_child": "a process"}


@pytest.mark.parametrize("task", TASKS, ids=TASKS.values())
def test_g2_a_job_whose_handler_misbehaves_is_tried_twice_and_dead_lettered(stage: Stage, task: str) -> None:
    misdeeds = [each for each in MISDEEDS if each not in DEADLY or task == "bad_child"]
    stage.orders.max_attempts = 2
    bad = {misdeed: stage.enqueue(task, misdeed=misdeed)[0] for misdeed in misdeeds}
    good = stage.enqueue("plain", 20)
    worker = stage.worker(concurrency=8)
    final = eventually(lambda: (s := stage.snapshot()).is_drained and s, "every job has ended")
    assert worker.poll() is None
    assert {final.state_of(job) for job in good} == {"succeeded"}
    assert {misdeed: final.state_of(job) for misdeed, job in bad.items()} == dict.fromkeys(bad, "failed")
    for misdeed, job in bad.items():
        # What cannot be stored would be no better the second time.
        assert len(stage.app.job(job).failures) == (1 if misdeed == "unserialisable" else 2), misdeed
    brought("handler misbehaved", len(bad))
    stage.verdict().require("a settle")


@pytest.mark.parametrize(("task", "misdeed"), [("bad", "exit at once"), ("bad_lane", "segfault"), ("bad", "kill")])
def test_g2_a_job_that_ends_its_worker_is_dead_lettered_by_its_successors(
    stage: Stage, task: str, misdeed: str
) -> None:
    stage.orders.max_attempts = 2
    (bad,) = stage.enqueue(task, misdeed=misdeed)
    good = stage.enqueue("plain", 20)
    died = 0
    while not stage.snapshot().is_drained:
        worker = stage.worker(lease=0.5, concurrency=1)
        eventually(lambda: worker.poll() is not None or stage.snapshot().is_drained, "it died, or all is done")  # noqa: B023
        died += worker.poll() is not None
    final = stage.snapshot()
    assert final.state_of(bad) == "failed"
    assert {final.state_of(job) for job in good} == {"succeeded"}
    assert died == 2
    brought("handler misbehaved", died)
    stage.verdict().require("a settle")


def test_g13_a_worker_with_more_hung_handlers_than_slots_ends_and_its_successor_goes_on(stage: Stage) -> None:
    stage.orders.max_attempts = 2
    hung = stage.enqueue("bad", 7, misdeed="hang")
    good = stage.enqueue("plain", 20)
    workers = [stage.worker(concurrency=8)]

    def drained() -> Snapshot | None:
        if workers[-1].poll() is not None:
            assert workers[-1].returncode == STUCK_STATUS
            workers.append(stage.worker(concurrency=8))
        return snapshot if (snapshot := stage.snapshot()).is_drained else None

    final = eventually(drained, "every job has ended")
    # Of 14 threads that hang the first worker left 9 behind, or all by the time it noticed.
    eventually(lambda: workers[0].poll() is not None, "the first worker has ended")
    assert workers[0].returncode == STUCK_STATUS
    assert len(workers) <= 2
    assert {final.state_of(job) for job in good} == {"succeeded"}
    assert {final.state_of(job) for job in hung} == {"failed"}
    assert {len(stage.app.job(job).failures) for job in hung} == {2}
    brought("handler misbehaved", 2 * len(hung))
    stage.verdict().require("a settle")
