"""G5 and G6: order per key and limits hold when workers and owners are killed or stopped, and when the server is."""

from __future__ import annotations

import signal
import subprocess

from tests.fault.stage import MakeStage, OwnServer, eventually, is_stopped, times


def test_g5_keys_keep_their_order_when_owners_are_killed_at_any_moment(
    make_stage: MakeStage, database_url: str
) -> None:
    stage = make_stage(database_url, ordered=4, work_seconds=0.002)
    crew = [stage.worker() for _ in range(3)]
    with stage.producing_steps("ordered"):
        for number in range(times(6, 100)):
            victim = crew[number % 3]
            eventually(lambda: any(run.actor == str(victim.pid) for run in stage.runs()), "the worker is at work")  # noqa: B023
            stage.breathe()
            victim.kill()
            victim.wait()
            crew[number % 3] = stage.worker()
    stage.verdict(per_key=1).require("a job run again", "a settle", "a key run by several workers")


def test_g5_an_owner_stopped_past_its_lease_neither_starts_nor_settles_when_it_comes_back(
    make_stage: MakeStage, database_url: str
) -> None:
    stage = make_stage(database_url, ordered=4, work_seconds=0.002)
    crew = [stage.worker() for _ in range(3)]
    with stage.producing_steps("ordered"):
        for number in range(times(4, 100)):
            victim = crew[number % 3]
            eventually(lambda: any(run.actor == str(victim.pid) for run in stage.runs()), "the worker is at work")  # noqa: B023
            stage.breathe()
            victim.send_signal(signal.SIGSTOP)
            eventually(lambda: is_stopped(victim.pid), "the worker is stopped")  # noqa: B023
            eventually(lambda: stage.has_lost_its_partitions(victim.pid), "others have taken over")  # noqa: B023
            settles = stage.settles()
            eventually(lambda: stage.settles() > settles + 20, "the others go on")  # noqa: B023
            victim.send_signal(signal.SIGCONT)
    stage.verdict(per_key=1).require("a job run again", "a settle")


def test_g5_keys_keep_their_order_when_the_server_is_killed(own_server: OwnServer, make_stage: MakeStage) -> None:
    stage = make_stage(own_server.url, ordered=4, work_seconds=0.002)
    for _ in range(2):
        stage.worker()
    for _ in range(times(2, 50)):
        with stage.producing_steps("ordered"):
            before = stage.settles()
            eventually(lambda: stage.settles() > before, "jobs are settled")  # noqa: B023
            own_server.kill()
            eventually(lambda: stage.settles() > before + 20, "jobs are settled again")  # noqa: B023
    stage.verdict(per_key=1).require("a settle")


def test_g5_keys_keep_their_order_through_resizes_and_kills(make_stage: MakeStage, database_url: str) -> None:
    stage = make_stage(database_url, ordered=2, work_seconds=0.002)
    crew = [stage.worker() for _ in range(3)]
    with stage.producing_steps("ordered", keys=64):
        for number, partitions in enumerate([8, 4, 3] * times(1, 30)):
            settles = stage.settles()
            eventually(lambda: stage.settles() > settles + 30, "jobs are settled")  # noqa: B023
            stage.app.resize("ordered", partitions=partitions)
            stage.breathe()
            crew[number % 3].kill()
            crew[number % 3].wait()
            crew[number % 3] = stage.worker()
    stage.verdict(per_key=1).require("a settle", "a key run by several workers")


def test_g6_a_limit_holds_when_workers_are_killed(make_stage: MakeStage, database_url: str) -> None:
    stage = make_stage(database_url, limit=3, work_seconds=0.005)
    crew = [stage.worker() for _ in range(3)]

    def at_work() -> list[subprocess.Popen[bytes]]:
        # Who has the slots keeps them while there is work: the others may wait for ever.
        actors = {run.actor for run in stage.runs()}
        return [process for process in crew if str(process.pid) in actors]

    with stage.producing_steps("limited"):
        for _ in range(times(4, 100)):
            (victim, *_) = eventually(at_work, "a worker is at work")
            stage.breathe()
            victim.kill()
            victim.wait()
            crew.remove(victim)
            crew.append(stage.worker())
    stage.verdict(limit=3).require("a settle", "a limit reached")
