"""Four producers on one partition, against four that each have a partition of their own: nobody should wait for
another. Each is a process that calls `enqueue_many` of 500. A partition of one's own is a queue of one partition here,
so that the rows and the code are the same and only the partition differs. One producer alone is stated beside them:
with more producers than cores each gets a share of the machine.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import mean

from bench.processes import Gate, processes, produce, running
from bench.run import Run
from bench.server import Server

QUESTION = "Do producers on one partition wait for each other?"

CALL = 500
PRODUCERS = 4


def measure(run: Run) -> None:
    calls = run.size(200, 20)
    shared, apart, alone = [], [], []
    for _ in run.repeats():
        shared.append(rate_of_each(run.server, calls, ["bench"] * PRODUCERS))
        apart.append(rate_of_each(run.server, calls, [f"bench-{number}" for number in range(PRODUCERS)]))
        alone.append(rate_of_each(run.server, calls * PRODUCERS, ["bench"]))
    name = f"{PRODUCERS} producers on one partition, each"
    run.compare(name, "jobs/s", shared, f"on {PRODUCERS} partitions, each", apart, at_least=0.9)
    run.compare(name, "jobs/s", shared, "one producer alone", alone)
    run.note(f"{calls} calls of {CALL} a producer; 0.9 stands for 'no slower, within noise'")


def rate_of_each(server: Server, calls: int, queues: list[str]) -> float:
    """Jobs a second of each producer, on average; a producer for each queue named."""
    gate, seconds = Gate(), processes.SimpleQueue()
    with server.database() as url, ExitStack() as stack:
        for queue in queues:
            stack.enter_context(running(produce, url, gate, calls, CALL, queue, seconds))
        gate.wait_for(len(queues))
        gate.open()
        return mean(calls * CALL / seconds.get() for _ in queues)
