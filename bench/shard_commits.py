"""Two shards against one: producers that enqueue one job a call, durable on return, so that the flush of the write-
ahead log is what they wait for. A shard is a server of its own, with its own log; on one server the same producers
use two partitions. What the disk itself can do stands beside it: how often a second it flushes 8 KiB that were
appended to a file, for one writer and for two at a time, each with a file of its own; and how busy the cores are, which
both servers and all producers share.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bench.processes import Gate, processes, running
from bench.run import Run
from bench.server import Server, started_server
from bench.workload import ARGUMENTS, declare

QUESTION = "Do two shards take more small durable calls than one?"

PRODUCERS = (2, 4)
WARM_UP = 100
PAGE = b"\0" * 8192


class Found(NamedTuple):
    """Durable jobs a second of all producers together, and the share of the machine's cores that was at work."""

    rate: float
    busy: float


def measure(run: Run) -> None:
    jobs = run.size(8_000, 800)
    for producers in PRODUCERS:
        one, two = [], []
        with started_server() as other:
            for _ in run.repeats():
                one.append(enqueue_on([run.server], producers, jobs // producers))
                two.append(enqueue_on([run.server, other], producers, jobs // producers))
        run.compare(
            f"two shards, calls of one job, {producers} producers",
            "jobs/s",
            [each.rate for each in two],
            "one shard",
            [each.rate for each in one],
            at_least=1.3 if producers == max(PRODUCERS) else None,
        )
        run.compare(
            f"cores at work, {producers} producers",
            "%",
            [each.busy for each in two],
            "one shard",
            [each.busy for each in one],
        )
    alone = [flushes(1, run.size(2_000, 200)) for _ in run.repeats()]
    beside = [flushes(2, run.size(2_000, 200)) for _ in run.repeats()]
    run.compare("the disk: flushes of two writers", "flushes/s", beside, "of one", alone)
    run.note(f"a process for each producer, {jobs:,} jobs; two partitions either way")


def enqueue_on(servers: list[Server], producers: int, jobs: int) -> Found:
    """Let so many producers enqueue so many jobs each, one a call."""
    gate, seconds = Gate(), processes.SimpleQueue()
    with ExitStack() as stack:
        urls = [stack.enter_context(server.database()) for server in servers]
        app, _ = declare(urls, partitions=2)
        with app:
            app.migrate()
        for _ in range(producers):
            stack.enter_context(running(enqueue_singly, urls, gate, jobs, seconds))
        gate.wait_for(producers)
        before = _ticks()
        gate.open()
        rate = sum(jobs / seconds.get() for _ in range(producers))
        idle, whole = (after - was for after, was in zip(_ticks(), before, strict=True))
        return Found(rate, 100.0 * (1.0 - idle / whole))


def _ticks() -> tuple[int, int]:
    """Of all cores since the start: idle or waiting for the disk, and in all."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return ticks[3] + ticks[4], sum(ticks)


def enqueue_singly(urls: list[str], gate: Gate, jobs: int, seconds: Any) -> None:
    app, task = declare(urls, partitions=2)
    with app:
        for number in range(WARM_UP):
            task.enqueue(**ARGUMENTS[number])
        gate.arrive()
        began = time.perf_counter()
        for number in range(jobs):
            task.enqueue(**ARGUMENTS[number % len(ARGUMENTS)])
        seconds.put(time.perf_counter() - began)


def flushes(writers: int, count: int) -> float:
    """Flushes a second of so many writers together."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:

        def write(number: int) -> None:
            descriptor = os.open(Path(folder) / str(number), os.O_WRONLY | os.O_CREAT, 0o600)
            for _ in range(count):
                os.write(descriptor, PAGE)
                os.fdatasync(descriptor)
            os.close(descriptor)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return writers * count / (time.perf_counter() - began)
