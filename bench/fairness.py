"""Two tenants of one queue with equal weights: one has 100,000 jobs waiting, the other enqueues 10 now and then. How
long the small one waits, from its enqueue until the last of its ten has started, while the worker is busy with the
large one; against a queue it has for itself. Handlers take a millisecond. The wait is that of the median batch.
"""

from __future__ import annotations

import random
import time
from typing import Any, NamedTuple

from bench.completion import completed, wait_for_completed
from bench.pickup import percentile_of
from bench.processes import processes, running
from bench.run import Run
from bench.server import Server, connect
from bench.workload import QUEUE
from penstock import App

QUESTION = "How long does a small tenant wait beside a large one?"

CALL = 1_000
SMALL = 10
JOB_SECONDS = 0.001
SPACE_SECONDS = (0.1, 0.3)
# The large tenant's jobs have this place: their starts are not written down.
NOWHERE = -1


class Waits(NamedTuple):
    """Of the small tenant's batches, in milliseconds, and how many of the large one's jobs waited at the end."""

    from_call: float
    from_return: float
    worst_from_return: float
    large_left: int


def measure(run: Run) -> None:
    large, batches = run.size(100_000, 30_000), run.size(25, 5)
    beside: list[Waits] = []
    alone: list[Waits] = []
    for _ in run.repeats():
        beside.append(waits(run.server, large, batches))
        alone.append(waits(run.server, 0, batches))
    for name, of, bar in (
        ("wait from the call of enqueue_many", "from_call", 3.0),
        ("wait from its return", "from_return", None),
        ("longest wait from its return", "worst_from_return", None),
    ):
        values, against = ([getattr(each, of) for each in side] for side in (beside, alone))
        run.compare(f"{name}, beside a large tenant", "ms", values, "alone", against, at_most=bar)
    run.note(f"{batches} batches of {SMALL} a repeat; 1 worker with concurrency 16, jobs of {JOB_SECONDS * 1000:g} ms")
    run.note(
        f"the large tenant had {large:,} jobs at first and at least {min(each.large_left for each in beside):,} left"
    )


def waits(server: Server, large: int, batches: int) -> Waits:
    """Let the small tenant enqueue its batches beside so many jobs of the large one."""
    started = processes.Array("q", batches * SMALL, lock=False)
    spaces = random.Random(7)
    called: list[int] = []
    returned: list[int] = []
    with server.database() as url, connect(url) as connection:
        app, task = _declare(url, started)
        with app:
            for _ in range(large // CALL):
                task.options(tenant="large").enqueue_many([{"place": NOWHERE}] * CALL)
            small = task.options(tenant="small")
            small.enqueue_many([{"place": NOWHERE}] * SMALL)
            with running(_work, url, started) as worker:
                wait_for_completed(connection, large // 20 + SMALL, [worker])
                for batch in range(batches):
                    time.sleep(spaces.uniform(*SPACE_SECONDS))
                    called.append(time.monotonic_ns())
                    small.enqueue_many([{"place": batch * SMALL + number} for number in range(SMALL)])
                    returned.append(time.monotonic_ns())
                left = large - completed(connection)
                if large and left <= 0:
                    raise RuntimeError("the large tenant's jobs ran out: nothing was measured")
                while not all(started):
                    if worker.exitcode is not None:
                        raise RuntimeError("the worker ended too early; what it said stands above")
                    time.sleep(0.02)
    last = [max(started[low : low + SMALL]) for low in range(0, batches * SMALL, SMALL)]
    return Waits(
        percentile_of(called, last, 50), percentile_of(returned, last, 50), percentile_of(returned, last, 100), left
    )


def _declare(url: str, started: Any) -> tuple[App, Any]:
    app = App(url)

    def take_a_millisecond(place: int) -> None:
        if place != NOWHERE:
            started[place] = time.monotonic_ns()
        time.sleep(JOB_SECONDS)

    return app, app.queue(QUEUE, fair_by="tenant").task(take_a_millisecond)


def _work(url: str, started: Any) -> None:
    app, _ = _declare(url, started)
    with app:
        app.work()
