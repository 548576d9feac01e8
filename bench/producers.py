"""Four producers on one partition, against four that each have a partition of their own: nobody should wait for
another. Each is a process that calls `enqueue_many` of 500. A partition of one's own is a queue of one partition here,
so that the rows and the code are the same and only the partition differs. Both are measured in turns, and the interval
is told in which the ratio lies. One producer alone is stated beside them:
with more producers than cores each gets a share of the machine.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import mean

from bench.compare import Ratio
from bench.processes import Gate, processes, produce, running
from bench.run import Run
from bench.server import Server

QUESTION = "Do producers on one partition wait for each other?"

CALL = 500
PRODUCERS = 4
PAIRS = 10


def measure(run: Run) -> None:
    calls, pairs = run.size(100, 20), run.size(PAIRS, 2)
    one, several = ["bench"] * PRODUCERS, [f"bench-{number}" for number in range(PRODUCERS)]
    shared: list[float] = []
    apart: list[float] = []
    for pair in range(pairs):
        run.say(f"producers: pair {pair + 1} of {pairs}")
        # In the order A B B A: what drifts meets both.
        sides = [(one, shared), (several, apart)]
        for queues, rates in sides if pair % 2 == 0 else reversed(sides):
            rates.append(rate_of_each(run.server, calls, queues))
    alone = [rate_of_each(run.server, calls * PRODUCERS, ["bench"]) for _ in run.repeats()]
    name = f"{PRODUCERS} producers on one partition, each"
    run.compare(name, "jobs/s", shared, f"on {PRODUCERS} partitions, each", apart, at_least=0.95)
    run.state("one producer alone", "jobs/s", alone)
    ratio = Ratio([mine / other for mine, other in zip(shared, apart, strict=True)])
    run.note(f"{calls} calls of {CALL} a producer; over {pairs} pairs the ratio and its interval are {ratio}")


def rate_of_each(server: Server, calls: int, queues: list[str]) -> float:
    """Jobs a second of each producer, on average; a producer for each queue named."""
    gate, seconds = Gate(), processes.SimpleQueue()
    with server.database() as url, ExitStack() as stack:
        for queue in queues:
            stack.enter_context(running(produce, url, gate, calls, CALL, queue, seconds))
        gate.wait_for(len(queues))
        gate.open()
        return mean(calls * CALL / seconds.get() for _ in queues)
