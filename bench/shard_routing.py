"""What routing costs: a single `enqueue` by an app of two shards, to a queue whose one partition lives on the first,
against the same call by an app that knows only that server. They take turns in blocks, on one server.
"""

from __future__ import annotations

import time
from typing import Any

from bench.run import Run
from bench.server import started_server
from bench.workload import ARGUMENTS, declare

QUESTION = "What does it cost to have several shards, for a call to one of them?"

BLOCK = 250


def measure(run: Run) -> None:
    jobs = run.size(10_000, 1_000)
    routed, direct = [], []
    with started_server() as other:
        for _ in run.repeats():
            with run.server.database() as near, other.database() as far, run.server.database() as alone:
                several, task = declare([near, far])
                single, plain = declare(alone)
                with several, single:
                    placed = several.stats("bench").partitions[0].shard
                    if placed != "1":
                        raise RuntimeError(f"the queue lies on shard {placed}, which is another server")
                    rates = _take_turns(task, plain, jobs)
            routed.append(rates[0])
            direct.append(rates[1])
    run.compare("enqueue with two shards", "jobs/s", routed, "with one", direct, at_least=0.91)
    run.note(f"{jobs:,} jobs a side in blocks of {BLOCK}, one thread; 0.91 is 1.1 times the time")


def _take_turns(task: Any, plain: Any, jobs: int) -> tuple[float, float]:
    seconds = [0.0, 0.0]
    _enqueue(task, 0)
    _enqueue(plain, 0)
    for block in range(jobs // BLOCK):
        seconds[0] += _enqueue(task, block)
        seconds[1] += _enqueue(plain, block)
    done = jobs // BLOCK * BLOCK
    return done / seconds[0], done / seconds[1]


def _enqueue(task: Any, block: int) -> float:
    low = block * BLOCK % (len(ARGUMENTS) - BLOCK)
    began = time.perf_counter()
    for row in ARGUMENTS[low : low + BLOCK]:
        task.enqueue(**row)
    return time.perf_counter() - began
