"""Batches: whole cycles with handlers that are given up to 100 jobs at once, against one at a time.

One handler does nothing: that is what batches themselves cost and save. The other waits for a millisecond in each call,
as for a database or a service: that is what they are for. Most figures are of a plain queue, the last of an ordered one
and a single key, whose jobs run one after the other.
"""

from __future__ import annotations

from typing import Any

from bench.cycle import CONCURRENCY, cycle
from bench.run import Run

QUESTION = "What do batch handlers cost, and what do they save?"

BATCH = 100
CALL_SECONDS = 0.001
QUEUES: dict[str, dict[str, Any]] = {
    "nothing to do": {},
    "1 ms a call": {"call_seconds": CALL_SECONDS},
    "1 ms a call, one key": {"call_seconds": CALL_SECONDS, "key": "currency", "order": "key"},
}


def measure(run: Run) -> None:
    jobs = run.size(60_000, 10_000)
    alone: dict[str, list[float]] = {name: [] for name in QUEUES}
    together: dict[str, list[float]] = {name: [] for name in QUEUES}
    for _ in run.repeats():
        for name, options in QUEUES.items():
            count = jobs // 10 if "order" in options else jobs
            alone[name].append(cycle(run.server, count, workers=1, **options).rate)
            together[name].append(cycle(run.server, count, workers=1, batch=BATCH, **options).rate)
    for name in QUEUES:
        run.compare(f"whole cycles in batches, {name}", "jobs/s", together[name], "one at a time", alone[name])
    run.note(f"{jobs:,} jobs, a tenth of that with one key; 1 worker, {CONCURRENCY} slots, batches of at most {BATCH}")
