"""Whole cycles: a producer process enqueues in calls of 1,000 while worker processes claim, run a handler that does
nothing, and settle; against raw COPY of the same rows. The clock runs from the first call until the last job is
durably completed. Producer and workers are warm: connected, their statements prepared, some thousand jobs done.

Two workers beside a producer have more to do at once than two cores: what each of them costs is told by the jobs for
each second of CPU, the workers' and the server's together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from bench import raw_copy
from bench.completion import wait_for_completed
from bench.processes import WARM_UP_CALLS, Gate, produce, running, work
from bench.raw_copy import CALL
from bench.run import Run
from bench.server import Server, connect, cpu_seconds, wal_position
from bench.workload import ARGUMENT_BYTES, QUEUE

QUESTION = "How many whole cycles a second, against writing the rows alone?"

CONCURRENCY = 16


class Cycle(NamedTuple):
    """What one run of it gave."""

    rate: float
    cpu_rate: float
    wal_bytes_a_job: float


def measure(run: Run) -> None:
    jobs = run.size(300_000, 30_000)
    copied, ready, one, two = [], [], [], []
    for _ in run.repeats():
        copied.append(raw_copy.from_dicts(run.server, jobs))
        one.append(cycle(run.server, jobs, workers=1))
        two.append(cycle(run.server, jobs, workers=2))
        ready.append(raw_copy.from_bytes(run.server, jobs))
    for name, cycles in (("whole cycles, 1 worker", one), ("whole cycles, 2 workers", two)):
        rates = [each.rate for each in cycles]
        run.compare(name, "jobs/s", rates, "raw COPY from dicts", copied, at_least=0.75 if cycles is one else None)
    run.compare("whole cycles, 1 worker", "jobs/s", [each.rate for each in one], "raw COPY of ready-made bytes", ready)
    name, against = "for each second of CPU, 2 workers", "for each, 1 worker"
    cpu_rates = [[each.cpu_rate for each in cycles] for cycles in (two, one)]
    run.compare(name, "jobs/s", cpu_rates[0], against, cpu_rates[1], at_least=0.95)
    run.state("WAL a job, 1 worker", "bytes", [each.wal_bytes_a_job for each in one], at_most=450)
    run.state("WAL a job, 2 workers", "bytes", [each.wal_bytes_a_job for each in two])
    run.note(f"{jobs:,} jobs, {ARGUMENT_BYTES:.0f} bytes of arguments on average; the bar against COPY is for 1 worker")


def cycle(server: Server, jobs: int, workers: int, **options: Any) -> Cycle:
    """Enqueue and complete so many jobs; `options` as `declare` takes them."""
    with server.database() as url, connect(url) as connection, ExitStack() as stack:
        gate = Gate()
        started = [stack.enter_context(running(work, url, CONCURRENCY, QUEUE, options)) for _ in range(workers)]
        started.append(stack.enter_context(running(produce, url, gate, jobs // CALL, CALL, QUEUE, None, options)))
        gate.wait_for(1)
        warm_up = WARM_UP_CALLS * CALL
        wait_for_completed(connection, warm_up, started)
        wal_before, cpu_before, began = wal_position(connection), _cpu(server, started[:workers]), time.perf_counter()
        gate.open()
        wait_for_completed(connection, warm_up + jobs, started)
        seconds = time.perf_counter() - began
        cpu_now = _cpu(server, started[:workers])
        cpu = sum(now - cpu_before.get(process, 0.0) for process, now in cpu_now.items())
        return Cycle(jobs / seconds, jobs / cpu, (wal_position(connection) - wal_before) / jobs)


def _cpu(server: Server, workers: Sequence[BaseProcess]) -> dict[int, float]:
    """Seconds of CPU so far, by process: the workers' and the server's."""
    return server.cpu_seconds() | {worker.pid: cpu_seconds(worker.pid) for worker in workers if worker.pid is not None}
