"""One job that kills its worker must not take its neighbours with it, nor those that never started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.judge.snapshot import Snapshot, read_snapshot
from tests.system.conftest import Execute

from penstock import App

ROOT = Path(__file__).parents[2]

WORKER = """
import os, signal, sys, time
from penstock import App
app = App(shards=sys.argv[3:], lease=1.0)
queue = app.queue("q", partitions=len(sys.argv[3:]))
at_work = 0

@queue.task(max_attempts=int(sys.argv[1]), backoff=0)
def work(n: int, poison: int) -> None:
    global at_work
    at_work += 1
    if n == poison:
        # It dies at the worst moment: when as many as possible run beside it.
        deadline = time.monotonic() + 0.3
        while time.monotonic() < deadline and at_work < 4:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(float(sys.argv[2]))
    at_work -= 1

if __name__ == "__main__":
    app.work(concurrency=4, until_idle=True)
"""


def drain(urls: list[str], folder: Path, max_attempts: int, work_seconds: float = 0.0) -> int:
    """Run worker after worker until every job has ended; how many died."""
    program = folder / "worker.py"
    program.write_text(WORKER)
    died = 0
    while not read_snapshot(*urls).is_drained:
        command = [sys.executable, str(program), str(max_attempts), str(work_seconds), *urls]
        code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
        assert code in (0, -signal.SIGKILL)
        died += code != 0
    return died


def enqueue(urls: list[str], count: int, poison: int, max_attempts: int) -> list[int]:
    with App(shards=urls) as app:

        @app.queue("q", partitions=len(urls)).task(max_attempts=max_attempts)
        def work(n: int, poison: int) -> None: ...

        return work.enqueue_many([{"n": n, "poison": poison} for n in range(count)])


def dead(final: Snapshot) -> list[int]:
    return [job for job, state in final.places if state == "failed"]


@pytest.mark.parametrize("work_seconds", [0.0, 0.05], ids=["fast neighbours", "slow neighbours"])
def test_a_poison_job_in_a_range_of_1000_ends_alone(urls: list[str], tmp_path: Path, work_seconds: float) -> None:
    count = 1000 if not work_seconds else 60
    ids = enqueue(urls, count, poison=7, max_attempts=3)
    died = drain(urls, tmp_path, 3, work_seconds)
    final = read_snapshot(*urls)
    assert dead(final) == [ids[7]]
    assert final.states["succeeded"] == count - 1
    assert died >= 3


def test_jobs_that_never_started_are_never_dead_lettered(urls: list[str], tmp_path: Path) -> None:
    ids = enqueue(urls, 1000, poison=500, max_attempts=1)
    died = drain(urls, tmp_path, 1)
    final = read_snapshot(*urls)
    slots = 4
    assert ids[500] in dead(final)
    # Each worker that dies is charged with what its slots had, though some of that may have ended and not been settled.
    assert len(dead(final)) <= slots * died
    assert final.states["succeeded"] + len(dead(final)) == 1000


def test_a_rescue_charges_no_attempt_to_jobs_that_were_claimed_ahead(
    urls: list[str], execute: Execute, tmp_path: Path
) -> None:
    ids = enqueue(urls, 300, poison=100, max_attempts=25)
    drain_once = [sys.executable, str(tmp_path / "worker.py"), "25", "0", *urls]
    (tmp_path / "worker.py").write_text(WORKER)
    assert subprocess.run(drain_once, check=False).returncode == -signal.SIGKILL
    execute("delete from penstock.worker")
    execute("select penstock.rescue()")
    charged = execute(
        "select range * 1024 + m from penstock.ready, unnest(penstock.positions(low, high, members)) as m"
        " where attempt > 1"
    )
    assert ids[299] not in {job for (job,) in charged}
    assert len(charged) <= 4
