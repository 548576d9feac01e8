"""Order per key: whole cycles, as `cycle` measures them, of a queue whose jobs run one at a time for each of 10,000
keys in 4 partitions, against those of a plain queue. The plain queue of the bar has no keys and one partition, so that
the ratio holds everything that order costs; one with the same keys and partitions, and no order, is stated beside it.
"""

from __future__ import annotations

from typing import Any

from bench.cycle import cycle
from bench.run import Run
from bench.workload import ARGUMENTS

QUESTION = "What does order per key cost, against a plain queue?"

KEYED: dict[str, Any] = {"key": "customer_id", "partitions": 4}
KINDS: dict[str, dict[str, Any]] = {"ordered": {**KEYED, "order": "key"}, "keyed": KEYED, "plain": {}}


def measure(run: Run) -> None:
    jobs = run.size(100_000, 10_000)
    found: dict[tuple[str, int], list[float]] = {
        ("ordered", 1): [],
        ("plain", 1): [],
        ("keyed", 1): [],
        ("ordered", 2): [],
        ("plain", 2): [],
    }
    wal: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in run.repeats():
        for (kind, workers), rates in found.items():
            one = cycle(run.server, jobs, workers, **KINDS[kind])
            rates.append(one.rate)
            if workers == 1:
                wal[kind].append(one.wal_bytes_a_job)
    plain, one, two = found["plain", 1], found["ordered", 1], found["ordered", 2]
    run.compare("ordered, 1 worker", "jobs/s", one, "plain, 1 worker", plain, at_least=0.5)
    run.compare("ordered, 1 worker", "jobs/s", one, "plain, the same keys and partitions", found["keyed", 1])
    run.compare("ordered, 2 workers", "jobs/s", two, "plain, 2 workers", found["plain", 2])
    run.compare("WAL a job, ordered, 1 worker", "bytes", wal["ordered"], "plain", wal["plain"])
    run.note(f"{jobs:,} jobs in calls of 1,000, {len(ARGUMENTS):,} keys, 4 partitions; the bar is for 1 worker")
