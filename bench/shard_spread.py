"""Even spread: calls without keys, of 1 to 100 jobs each, from four producers, over eight partitions on two shards. A
call goes whole to one partition, the one that a producer believes to hold the fewest jobs; producers do not talk.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Any

from bench.processes import Gate, processes, running
from bench.run import Run
from bench.server import Server, started_server
from bench.workload import ARGUMENTS, QUEUE, declare

QUESTION = "How evenly are calls without keys spread?"

PRODUCERS = 4
PARTITIONS = 8
CALLS = 1_000


def measure(run: Run) -> None:
    fullest, mean = [], []
    with started_server() as other:
        for _ in run.repeats():
            depths = spread([run.server, other], run.size(CALLS, 200))
            fullest.append(max(depths))
            mean.append(sum(depths) / len(depths))
    run.compare("the fullest partition", "jobs", fullest, "the mean", mean, at_most=1.2)
    run.note(
        f"{run.size(CALLS, 200):,} calls of 1 to 100 jobs, {PRODUCERS} producers, {PARTITIONS} partitions, no worker"
    )


def spread(servers: list[Server], calls: int) -> list[int]:
    """The jobs in each partition afterwards."""
    gate, done = Gate(), processes.SimpleQueue()
    with ExitStack() as stack:
        urls = [stack.enter_context(server.database()) for server in servers]
        app, _ = declare(urls, partitions=PARTITIONS)
        with app:
            app.migrate()
            for number in range(PRODUCERS):
                stack.enter_context(running(enqueue_unkeyed, urls, gate, calls // PRODUCERS, number, done))
            gate.wait_for(PRODUCERS)
            gate.open()
            for _ in range(PRODUCERS):
                done.get()
            return [each.queue_length for each in app.stats(QUEUE).partitions]


def enqueue_unkeyed(urls: list[str], gate: Gate, calls: int, seed: int, done: Any) -> None:
    sizes = random.Random(seed)
    app, task = declare(urls, partitions=PARTITIONS)
    with app:
        # Connected and the catalogue read; an empty call writes nothing.
        app.stats(QUEUE)
        gate.arrive()
        for _ in range(calls):
            task.enqueue_many(ARGUMENTS[: sizes.randint(1, 100)])
        done.put(calls)
