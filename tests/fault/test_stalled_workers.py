"""G4: a worker that is stopped past its lease and comes back changes nothing, and is told."""

from __future__ import annotations

import signal

from tests.fault.stage import Stage, eventually, is_stopped, times
from tests.fault.tally import brought


def test_g4_a_worker_stopped_past_its_lease_is_refused_and_told(mixed_stage: Stage) -> None:
    stage = mixed_stage
    crew = [stage.worker(), stage.worker()]
    for number in range(times(3, 8)):
        (job,) = stage.enqueue("stall_lane" if number % 2 else "stall")
        stage.enqueue("plain", 20)
        stalled = eventually(lambda: [each for each in crew if is_stopped(each.pid)], "a worker is stopped")[0]
        stage.note_stopped(stalled)
        eventually(lambda: stage.state(job) == "succeeded", "the other worker has done the job")  # noqa: B023
        refusals = stage.refusals(stalled.pid)
        stalled.send_signal(signal.SIGCONT)
        eventually(lambda: stage.refusals(stalled.pid) > refusals, "the one that came back was told")  # noqa: B023
        brought("worker stopped past its lease")
    stage.verdict().require("a job run again", "a stale settle refused", "a settle")
