"""G1, G2, G3, G9: workers killed with SIGKILL, at named points and at any."""

from __future__ import annotations

import signal
import time

from tests.fault.crew import POINTS
from tests.fault.stage import Stage, eventually, times


def test_g1_g2_g3_nothing_is_lost_when_workers_are_killed_at_named_points(stage: Stage) -> None:
    rounds = times(1, 40)
    stage.enqueue("plain", 200)
    with stage.producing():
        for number in range(rounds):
            for point in POINTS:
                process = stage.worker(
                    die_at=point, die_after=1 + number % 3 if "turn" in point or "handler" in point else 1
                )
                stage.enqueue("plain", 5)
                stage.enqueue_family()
                stage.enqueue_family()
                eventually(lambda: process.poll() is not None, f"a worker died {point}")  # noqa: B023
                assert process.returncode == -signal.SIGKILL
    stage.verdict().require("a job run again", "a settle")


def test_g1_g2_g3_nothing_is_lost_when_handlers_kill_their_worker(stage: Stage) -> None:
    whens = ["before", "after", "later"] * times(3, 70)
    for when in whens:
        stage.enqueue("die_once", when=when)
    stage.enqueue("plain", 100)
    died = 0
    while not stage.snapshot().is_drained:
        process = stage.worker(concurrency=2)
        eventually(lambda: process.poll() is not None or stage.snapshot().is_drained, "the worker dies or is done")  # noqa: B023
        died += process.poll() == -signal.SIGKILL
    assert died >= len(whens) // 3  # Two may die together, and one that dies later may have been settled before.
    stage.verdict().require("a job run again", "a settle")


def test_g1_g2_g3_nothing_is_lost_when_workers_are_killed_at_any_moment(stage: Stage) -> None:
    kills = times(9, 310)
    crew = [stage.worker(work_seconds=0.01) for _ in range(2)]
    with stage.producing():
        for number in range(kills):
            victim = crew[number % 2]
            eventually(lambda: any(run.actor == str(victim.pid) for run in stage.runs()), "the worker is at work")  # noqa: B023
            stage.breathe()
            victim.kill()
            assert victim.wait() == -signal.SIGKILL
            crew[number % 2] = stage.worker(work_seconds=0.01)
    stage.verdict().require("a job run again", "a settle")


def test_g9_what_a_killed_worker_held_runs_again(stage: Stage) -> None:
    stage.enqueue("plain", 1)
    victim = stage.worker(work_seconds=600, concurrency=1)
    runs = eventually(lambda: stage.runs(), "the job runs")
    stage.worker()
    killed_at = time.monotonic_ns()
    victim.kill()
    again = eventually(lambda: stage.runs()[len(runs) :], "the job runs again")
    waited = (again[0].at - killed_at) / 1e9
    print(f"ran again {waited:.2f} s after the kill (lease 1.5 s, sweep 2 s)")  # noqa: T201
    assert again[0].attempt == 2
    assert again[0].lease > runs[0].lease
    stage.verdict().require("a job run again")
