"""The memory of a worker that drains a million jobs: its resident size, sampled twice a second. Flat means that the
last quarter of the samples is no higher than the second; in the first it warms up.
"""

from __future__ import annotations

import time
from statistics import median

from bench.completion import completed
from bench.processes import resident_bytes, running, work
from bench.run import Run
from bench.server import connect
from bench.workload import calls_of, declare

QUESTION = "Does a worker grow while it drains a million jobs?"

CALL = 1_000


def measure(run: Run) -> None:
    jobs = run.size(1_000_000, 60_000)
    early, late, highest = [], [], []
    for _ in run.repeats(most=1):
        samples = drain_and_sample(run, jobs, 0.5 if not run.is_quick else 0.05)
        quarter = len(samples) // 4
        early.append(median(samples[quarter : 2 * quarter]))
        late.append(median(samples[-quarter:]))
        highest.append(max(samples))
        tenths = [samples[len(samples) * tenth // 10] for tenth in range(10)] + [samples[-1]]
        run.note(f"every tenth of the run: {', '.join(f'{size:.1f}' for size in tenths)} MiB")
    run.compare("last quarter", "MiB", late, "second quarter", early, at_most=1.05)
    run.state("highest", "MiB", highest)
    run.note(f"{jobs:,} jobs, 1 worker with concurrency 16")


def drain_and_sample(run: Run, jobs: int, seconds: float) -> list[float]:
    """The resident size of the worker in MiB, from its start until everything is completed."""
    calls = calls_of(CALL)
    with run.server.database() as url, connect(url) as connection:
        app, task = declare(url)
        with app:
            for number in range(jobs // CALL):
                task.enqueue_many(calls[number % len(calls)])
        samples = []
        with running(work, url) as worker:
            while completed(connection) < jobs:
                if worker.exitcode is not None:
                    raise RuntimeError("the worker ended too early; what it said stands above")
                if completed(connection):
                    samples.append(resident_bytes(worker) / 2**20)
                time.sleep(seconds)
        return samples
