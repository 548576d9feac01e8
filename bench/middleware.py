"""Middleware: whole cycles with one, and with three context managers that do nothing around each run, against none."""

from __future__ import annotations

from bench.cycle import cycle
from bench.run import Run

QUESTION = "What does middleware cost a job?"


def measure(run: Run) -> None:
    jobs = run.size(200_000, 20_000)
    none, one, three = [], [], []
    for _ in run.repeats():
        none.append(cycle(run.server, jobs, workers=1).rate)
        one.append(cycle(run.server, jobs, workers=1, middleware=1).rate)
        three.append(cycle(run.server, jobs, workers=1, middleware=3).rate)
    run.compare("whole cycles, 1 middleware", "jobs/s", one, "none", none)
    run.compare("whole cycles, 3 middleware", "jobs/s", three, "none", none)
    costs = [(1 / slow - 1 / fast) * 1e6 for slow, fast in zip(one, none, strict=True)]
    run.state("a job, 1 middleware more", "µs", costs)
    run.note(f"{jobs:,} jobs, 1 worker, 16 slots, a plain handler that does nothing")
