"""G1, G2, G3, G9: workers killed with SIGKILL, at named points and at any."""

from __future__ import annotations

import signal
import time

from tests.fault.crew import POINTS
from tests.fault.stage import Stage, batched, eventually, times
from tests.fault.tally import brought


def test_g1_to_g6_nothing_is_lost_when_workers_are_killed_at_named_points(mixed_stage: Stage) -> None:
    stage = mixed_stage
    points = stage.random.sample(sorted(POINTS), len(POINTS))
    stage.enqueue("plain", 200)
    with stage.producing_anything():
        for together in batched(points, 3):
            doomed = {
                point: stage.worker(
                    die_at=point,
                    die_after=stage.random.randint(1, 3) if "turn" in point or "handler" in point else 1,
                )
                for point in together
            }
            while any(process.poll() is None for process in doomed.values()):
                stage.enqueue("plain", 5)
                stage.enqueue_family()
                stage.breathe()
            for process in doomed.values():
                assert process.returncode == -signal.SIGKILL
            brought("worker killed", len(doomed))
    stage.verdict().require("a job run again", "a settle")


def test_g1_g2_g3_nothing_is_lost_when_handlers_kill_their_worker(stage: Stage) -> None:
    whens = ["before", "after", "later"] * 3
    for when in whens:
        stage.enqueue("die_once", when=when)
    stage.enqueue("plain", 100)
    died = 0
    while not stage.is_drained():
        process = stage.worker(concurrency=2)
        eventually(lambda: process.poll() is not None or stage.is_drained(), "the worker dies or is done")  # noqa: B023
        died += process.poll() == -signal.SIGKILL
    assert died >= len(whens) // 3  # Two may die together, and one that dies later may have been settled before.
    brought("worker killed", died)
    stage.verdict().require("a job run again", "a settle")


def test_g1_to_g6_nothing_is_lost_when_workers_are_killed_at_any_moment(mixed_stage: Stage) -> None:
    stage = mixed_stage
    crew = [stage.worker() for _ in range(4)]
    with stage.producing_anything():
        eventually(stage.runs, "the workers are at work")
        for _ in range(times(5, 60)):
            victim = stage.random.choice(crew)
            if stage.random.random() < 0.8:  # The others die while they begin.
                eventually(lambda: stage.is_at_work(victim), "the worker is at work")  # noqa: B023
            stage.breathe()
            victim.kill()
            assert victim.wait() == -signal.SIGKILL
            brought("worker killed")
            crew[crew.index(victim)] = stage.worker()
    stage.verdict().require("a job run again", "a settle")


def test_g2_children_of_dead_letters_come_back_when_workers_are_killed_at_any_moment(stage: Stage) -> None:
    families = [stage.enqueue_broken_family() for _ in range(20)]
    points = ["before it unblocks", "after it unblocked", "after a turn", "before a handler"]
    doomed = [stage.worker(die_at=point, die_after=stage.random.randint(1, 3)) for point in points]
    crew = [stage.worker()]
    eventually(lambda: "cancelled" in stage.snapshot().states, "children are cancelled for dead letters")
    ids = {id_ for family in families for id_ in family}

    def repair() -> bool:
        # Whoever dies in the second run of a parent makes a dead letter of it again.
        stage.app.retry(queue="work", state="failed")
        found = stage.snapshot()
        return all(found.state_of(id_) == "succeeded" for id_ in ids)

    for _ in range(times(4, 30)):
        repair()
        stage.breathe()
        victim = crew.pop()
        victim.kill()
        assert victim.wait() == -signal.SIGKILL
        brought("worker killed")
        crew.append(stage.worker())
    eventually(repair, "every family has come to a good end")
    assert stage.snapshot().totals["blocked"] == 0
    # Each ran to its end, the parent before the child.
    ends = {event.job: event.at for event in stage.ends()}
    for family in families:
        assert [ends[id_] for id_ in family] == sorted(ends[id_] for id_ in family)
    brought("worker killed", sum(process.poll() == -signal.SIGKILL for process in doomed))
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
