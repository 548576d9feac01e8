"""G5 and G6: order per key and limits hold when owners are killed or stopped, and through resizes."""

from __future__ import annotations

import signal

from tests.fault.spawner import WorkerProcess
from tests.fault.stage import MakeStage, Stage, eventually, times
from tests.fault.tally import brought

FAULT = "owner killed or stopped, or a resize under load"


def test_g5_keys_keep_their_order_when_owners_are_killed_at_any_moment(
    make_stage: MakeStage, database_url: str
) -> None:
    stage = make_stage(database_url, ordered=4, work_seconds=0.002)
    crew = [stage.worker() for _ in range(3)]
    with stage.producing_steps("ordered"):
        for number in range(times(6, 20)):
            kill_at_work(stage, crew, number % 3)
            brought(FAULT)
    stage.verdict().require("a job run again", "a settle", "a key run by several workers")


def test_g5_runs_keep_their_order_when_workers_are_killed_or_stopped(make_stage: MakeStage, database_url: str) -> None:
    stage = make_stage(database_url, ordered=3, run=20, work_seconds=0.002, lease=1.0)
    crew = [stage.worker() for _ in range(3)]
    with stage.producing_steps("ordered"):
        for number in range(times(6, 20)):
            if number % 3 == 2:
                victim = crew[number % 3]
                eventually(lambda: stage.is_at_work(victim), "the worker is at work")  # noqa: B023
                stage.stop(victim)
                eventually(lambda: stage.has_lost_its_partitions(victim.pid), "others have taken over")  # noqa: B023
                victim.send_signal(signal.SIGCONT)
            else:
                kill_at_work(stage, crew, number % 3)
            brought(FAULT)
    stage.verdict().require("a job run again", "a settle", "a key run by several workers")


def test_g5_an_owner_stopped_past_its_lease_neither_starts_nor_settles_when_it_comes_back(mixed_stage: Stage) -> None:
    stage = mixed_stage
    crew = [stage.worker() for _ in range(3)]
    with stage.producing_anything():
        for number in range(times(2, 6)):
            victim = crew[number % 3]
            eventually(lambda: stage.is_at_work(victim), "the worker is at work")  # noqa: B023
            stage.breathe()
            stage.stop(victim)
            eventually(lambda: stage.has_lost_its_partitions(victim.pid), "others have taken over")  # noqa: B023
            settles = stage.settles()
            eventually(lambda: stage.settles() > settles + 20, "the others go on")  # noqa: B023
            victim.send_signal(signal.SIGCONT)
            brought(FAULT)
            brought("worker stopped past its lease")
    stage.verdict().require("a job run again", "a settle")


def test_g5_keys_keep_their_order_through_resizes_and_kills(mixed_stage: Stage) -> None:
    stage = mixed_stage
    crew = [stage.worker() for _ in range(3)]
    with stage.producing_anything():
        for number, partitions in enumerate(stage.random.sample([8, 4, 3, 2], 3) * times(1, 3)):
            settles = stage.settles()
            eventually(lambda: stage.settles() > settles + 30, "jobs are settled")  # noqa: B023
            stage.app.resize("ordered", partitions=partitions)
            stage.breathe()
            kill_at_work(stage, crew, number % 3)
            brought(FAULT, 2)
    stage.verdict().require("a settle", "a key run by several workers")


def test_g6_a_limit_holds_when_workers_are_killed(make_stage: MakeStage, database_url: str) -> None:
    stage = make_stage(database_url, limit=3, work_seconds=0.005)
    crew = [stage.worker() for _ in range(3)]

    def at_work() -> list[WorkerProcess]:
        # Who has the slots keeps them while there is work: the others may wait for ever.
        return [process for process in crew if stage.is_at_work(process)]

    with stage.producing_steps("limited"):
        for _ in range(times(4, 20)):
            (victim, *_) = eventually(at_work, "a worker is at work")
            kill_at_work(stage, crew, crew.index(victim))
            brought("worker killed")
    stage.verdict().require("a settle", "a limit reached")


def test_g5_g6_batches_keep_order_and_limits_when_workers_are_killed(make_stage: MakeStage, database_url: str) -> None:
    stage = make_stage(database_url, ordered=3, limit=7, batch=5, work_seconds=0.005)
    crew = [stage.worker() for _ in range(3)]
    with stage.producing_steps("ordered"), stage.producing_steps("limited"):
        for number in range(times(4, 15)):
            kill_at_work(stage, crew, number % 3)
            brought(FAULT)
            brought("worker killed")
    stage.verdict().require("a job run again", "a settle", "a batch of several", "a limit reached")


def kill_at_work(stage: Stage, crew: list[WorkerProcess], number: int) -> None:
    """Kill one of the crew at some moment after it began its first job, and start another in its place."""
    victim = crew[number]
    eventually(lambda: stage.is_at_work(victim), "the worker is at work")
    stage.breathe()
    victim.kill()
    victim.wait()
    crew[number] = stage.worker()
