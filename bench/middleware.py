"""Middleware: whole cycles with one, and with three context managers that do nothing around each run, against none.

What one costs a job is told by CPU, the workers' and the server's: rates by the clock differ by more from run to run.
"""

from __future__ import annotations

from bench.cycle import cycle
from bench.run import Run

QUESTION = "What does middleware cost a job?"


def measure(run: Run) -> None:
    jobs = run.size(200_000, 20_000)
    none, one, three = [], [], []
    for _ in run.repeats():
        none.append(cycle(run.server, jobs, workers=1))
        one.append(cycle(run.server, jobs, workers=1, middleware=1))
        three.append(cycle(run.server, jobs, workers=1, middleware=3))
    without = [each.rate for each in none]
    run.compare("whole cycles, 1 middleware", "jobs/s", [each.rate for each in one], "none", without)
    run.compare("whole cycles, 3 middleware", "jobs/s", [each.rate for each in three], "none", without)
    for name, several in (("the first middleware", one), ("three of them", three)):
        costs = [(1 / slow.cpu_rate - 1 / fast.cpu_rate) * 1e6 for slow, fast in zip(several, none, strict=True)]
        run.state(f"CPU a job, {name}", "µs", costs)
    run.note(f"{jobs:,} jobs, 1 worker, 16 slots, a plain handler that does nothing")
