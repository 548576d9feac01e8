"""G1 to G5: workers far away and their servers killed and stopped, while every poll is made twice, at two servers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fault.remote_crew import RemoteCrew
from tests.fault.stage import MakeStage, Stage, eventually, times
from tests.fault.tally import brought

FAULT = "remote worker or its server killed"
LEASE = 1.5


@contextmanager
def crew_on(stage: Stage, folder: Path, workers: int) -> Iterator[RemoteCrew]:
    """A crew far away; what it says is shown where the test fails."""
    crew = RemoteCrew(stage, folder, lease=LEASE, workers=workers)
    try:
        yield crew
    finally:
        crew.close()
        print((folder / "remote.log").read_text()[-8000:])  # noqa: T201


def test_g1_to_g5_nothing_is_lost_or_settled_twice_when_servers_and_remote_workers_are_killed(
    make_stage: MakeStage, database_url: str, tmp_path: Path
) -> None:
    stage = make_stage(database_url, ordered=3, lease=LEASE)
    stage.app.migrate()
    stage.enqueue("plain", 60)
    stage.enqueue_steps("ordered", 60, keys=12)
    with crew_on(stage, tmp_path, workers=3) as crew:
        eventually(stage.settles, "the crew is at work")
        with stage.producing_steps("ordered"), stage.producing():
            for number in range(times(8, 60)):
                settles = stage.settles()
                if number % 2:
                    crew.kill_server(stage.random.randrange(2))
                else:
                    crew.kill_worker(stage.random.randrange(3))
                brought(FAULT)
                eventually(lambda: stage.settles() > settles + 10, "the others go on")  # noqa: B023
                stage.breathe()
                crew.check()
            crew.restart_server(0)
        eventually(stage.is_drained, "every job has ended")
        crew.check()
    stage.verdict().require("a job run again", "a settle", "a key run by several workers")


@pytest.mark.long_run
def test_g4_g5_servers_and_remote_workers_that_were_stopped_change_nothing_when_they_come_back(
    make_stage: MakeStage, database_url: str, tmp_path: Path
) -> None:
    stage = make_stage(database_url, ordered=3, lease=LEASE)
    stage.app.migrate()
    stage.enqueue("plain", 60)
    stage.enqueue_steps("ordered", 60, keys=12)
    with crew_on(stage, tmp_path, workers=4) as crew:
        eventually(stage.settles, "the crew is at work")
        with stage.producing_steps("ordered"), stage.producing():
            for number in range(times(3, 12)):
                victims = [crew.servers[number // 2 % 2], crew.workers[number % 4]]
                victim = victims[number % 2]
                crew.stop(victim)
                eventually(lambda: number % 2 or stage.has_lost_its_partitions(victim.pid), "others have taken over")  # noqa: B023
                settles = stage.settles()
                eventually(lambda: stage.settles() > settles + 30, "the others go on")  # noqa: B023
                victim.send_signal(signal.SIGCONT)
                brought(FAULT)
                brought("worker stopped past its lease")
                crew.check()
        eventually(stage.is_drained, "every job has ended")
        crew.check()
    stage.verdict().require("a job run again", "a settle")
