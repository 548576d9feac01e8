"""Two shards against one: producers that enqueue one job a call, durable on return, so that the flush of the write-
ahead log is what they wait for. A shard is a server of its own, with its own log; on one server the same producers
use two partitions. What the disk itself can do stands beside it: how often a second it flushes 8 KiB that were
appended to a file, for one writer and for two at a time, each with a file of its own.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.processes import Gate, processes, running
from bench.run import Run
from bench.server import Server, started_server
from bench.workload import ARGUMENTS, declare

QUESTION = "Do two shards take more small durable calls than one?"

PRODUCERS = 4
WARM_UP = 100
PAGE = b"\0" * 8192


def measure(run: Run) -> None:
    jobs = run.size(4_000, 400)
    one, two, alone, beside = [], [], [], []
    with started_server() as other:
        for _ in run.repeats():
            one.append(rate([run.server], jobs))
            two.append(rate([run.server, other], jobs))
            alone.append(flushes(1, run.size(2_000, 200)))
            beside.append(flushes(2, run.size(2_000, 200)))
    run.compare("two shards, calls of one job", "jobs/s", two, "one shard", one, at_least=1.3)
    run.compare("the disk: flushes of two writers", "flushes/s", beside, "of one", alone)
    run.note(f"{PRODUCERS} producers, a process each, {jobs:,} jobs a producer; two partitions either way")


def rate(servers: list[Server], jobs: int) -> float:
    """Durable jobs a second of all producers together."""
    gate, seconds = Gate(), processes.SimpleQueue()
    with ExitStack() as stack:
        urls = [stack.enter_context(server.database()) for server in servers]
        app, _ = declare(urls, partitions=2)
        with app:
            app.migrate()
        for _ in range(PRODUCERS):
            stack.enter_context(running(enqueue_singly, urls, gate, jobs, seconds))
        gate.wait_for(PRODUCERS)
        gate.open()
        return sum(jobs / seconds.get() for _ in range(PRODUCERS))


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
