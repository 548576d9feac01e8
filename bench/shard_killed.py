"""One of two shards is killed under load. Two producers enqueue jobs without keys, as fast as they may run ahead of
what is completed, and a worker serves both shards. After a while the second server is killed and stays down; later
it comes back.

What the first shard completes a second is compared, before and meanwhile. A producer's stall is its longest call
from the kill on. In the end everything that was acknowledged must have been completed once, and nothing else.
"""

from __future__ import annotations

import struct
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psycopg

from bench.completion import completed
from bench.processes import Gate, Pace, running
from bench.run import Run
from bench.server import Connection, Server, connect, started_server
from bench.workload import calls_of, declare
from penstock.errors import PenstockError

QUESTION = "What does the loss of one of two shards cost the other, and the producers?"

PRODUCERS = 2
CALL = 20
PARTITIONS = 4
MOST_AHEAD = 2_000
RECORD = struct.Struct("=qqq")


class Found(NamedTuple):
    """What one run of it gave."""

    before: float
    meanwhile: float
    stall_ms: float
    stall_before_ms: float
    refused: int
    lost: int
    doubled: int
    acknowledged: int


def measure(run: Run) -> None:
    seconds = 2.0 if run.is_quick else 8.0
    with started_server() as other:
        found = [kill_one(run.server, other, seconds) for _ in run.repeats()]
    run.compare(
        "the other shard, one killed",
        "jobs/s",
        [each.meanwhile for each in found],
        "before",
        [each.before for each in found],
        at_least=0.9,
    )
    stalls, before = [each.stall_ms for each in found], [each.stall_before_ms for each in found]
    run.compare("longest producer stall, from the kill on", "ms", stalls, "before it", before)
    run.state("calls refused", "", [each.refused for each in found])
    run.state("jobs lost", "", [each.lost for each in found], at_most=0)
    run.state("jobs doubled", "", [each.doubled for each in found], at_most=0)
    run.note(
        f"{min(each.acknowledged for each in found):,} jobs or more a repeat; {seconds:g} s before the kill, "
        f"{seconds:g} s down; {PRODUCERS} producers in calls of {CALL}, one worker"
    )


def kill_one(first: Server, second: Server, seconds: float) -> Found:
    """Kill the second server under load, bring it back, let everything drain, and judge."""
    gate, pace = Gate(), Pace(MOST_AHEAD)
    with ExitStack() as stack:
        urls = [stack.enter_context(server.database()) for server in (first, second)]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        app, _ = declare(urls, partitions=PARTITIONS)
        stack.enter_context(app)
        app.migrate()
        worker = stack.enter_context(running(work_on, urls))
        for number in range(PRODUCERS):
            stack.enter_context(running(produce_on, urls, gate, pace, folder / str(number)))
        gate.wait_for(PRODUCERS)
        near = stack.enter_context(connect(urls[0]))
        gate.open()
        time.sleep(1.0)
        before = _rate(near, pace, seconds)
        killed_at = time.perf_counter_ns()
        second.go_down()
        time.sleep(0.5)
        meanwhile = _rate(near, pace, seconds)
        second.come_up()
        _follow(near, pace, 2.0)
        pace.is_over.set()
        calls, refused = _read(folder)
        acknowledged = [job for _, _, first_id, size in calls for job in range(first_id, first_id + size)]
        far = _connected(urls[1])
        _drain([near, far], len(acknowledged))
        counted = _completions([near, far])
        worker.join(0)
    longest = [[0.0], [0.0]]
    for began, ended, _, _ in calls:
        longest[ended > killed_at].append((ended - began) / 1e6)
    return Found(
        before,
        meanwhile,
        max(longest[1]),
        max(longest[0]),
        refused,
        lost=len(set(acknowledged) - counted.keys()),
        doubled=sum(count - 1 for count in counted.values()) + len(counted.keys() - set(acknowledged)),
        acknowledged=len(acknowledged),
    )


def work_on(urls: list[str]) -> None:
    app, _ = declare(urls, partitions=PARTITIONS)
    with app:
        app.work(concurrency=16)


def produce_on(urls: list[str], gate: Gate, pace: Pace, notes: Path) -> None:
    """Enqueue at the pace; write down each call that was acknowledged, and those that were refused."""
    rows = calls_of(CALL)
    app, task = declare(urls, partitions=PARTITIONS)
    with app, notes.open("wb", buffering=0) as written:
        # A call's jobs lie together: its first id and its length tell all.
        ids = task.enqueue_many(rows[0])
        written.write(_noted(0, 0, ids))
        gate.arrive()
        number = 0
        while not pace.is_over.is_set():
            if number * CALL * PRODUCERS - pace.completed.value > pace.most_ahead:
                time.sleep(0.001)
                continue
            number += 1
            began = time.perf_counter_ns()
            try:
                ids = task.enqueue_many(rows[number % len(rows)])
            except PenstockError:
                written.write(RECORD.pack(began, time.perf_counter_ns(), -1))
                continue
            written.write(_noted(began, time.perf_counter_ns(), ids))


def _noted(began: int, ended: int, ids: list[int]) -> bytes:
    assert ids == list(range(ids[0], ids[0] + CALL))
    return RECORD.pack(began, ended, ids[0])


def _rate(near: Connection, pace: Pace, seconds: float) -> float:
    began, done = time.perf_counter(), completed(near)
    _follow(near, pace, seconds)
    return (completed(near) - done) / (time.perf_counter() - began)


def _follow(near: Connection, pace: Pace, seconds: float) -> None:
    """Let producers go on with what the first shard completes; what the other does comes on top."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        # Twice what the first shard did: the other takes as much while it is there, and its producers must not starve.
        pace.completed.value = 2 * completed(near)
        time.sleep(0.02)


def _read(folder: Path) -> tuple[list[tuple[int, int, int, int]], int]:
    time.sleep(1.0)  # The producers' last calls.
    records = [record for path in folder.iterdir() for record in RECORD.iter_unpack(path.read_bytes())]
    return [(began, ended, first, CALL) for began, ended, first in records if first >= 0], sum(
        r[2] < 0 for r in records
    )


def _connected(url: str) -> Connection:
    while True:
        try:
            return connect(url)
        except psycopg.OperationalError:
            time.sleep(0.1)


def _drain(connections: list[Connection], jobs: int) -> None:
    seen, moved_at = -1, time.monotonic()
    while (done := sum(map(completed, connections))) < jobs and time.monotonic() - moved_at < 60.0:
        if done != seen:
            seen, moved_at = done, time.monotonic()
        time.sleep(0.1)


def _completions(connections: list[Connection]) -> dict[int, int]:
    counted: dict[int, int] = {}
    for connection in connections:
        for job_id, count in connection.execute(
            "select job_id, count(*) from penstock.finished_job where outcome = 0 group by 1"
        ).fetchall():
            counted[job_id] = counted.get(job_id, 0) + count
    return counted
