"""Resizing under load: 2 partitions, then 8, then 4, while two producers enqueue jobs of 64 keys (by Zipf's law, the
first far more often than the last) and two workers run them, with up to a thousand jobs waiting at any time.

Producers write down when they made a call and when it returned, handlers when they ran which job. In the end each job
must have run once and be completed once, the jobs of a key one at a time and in the order of their calls. A producer's
stall is its longest call: until a resize was made and its old map drained, against the rest of the time.
"""

from __future__ import annotations

import os
import random
import struct
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bench.completion import completed
from bench.processes import Gate, Pace, running
from bench.run import Run
from bench.server import Connection, Server, connect
from bench.workload import QUEUE
from penstock import App

QUESTION = "Does a resize lose, double or reorder anything, and do producers wait for it?"

SIZES = (2, 8, 4)
KEYS = 64
CALL = 20
PRODUCERS = 2
WORKERS = 2
# With nothing completed for so long, what is left is lost.
PATIENCE_SECONDS = 20.0
# The key of each job, by its number, over and over.
DRAWN = random.Random(7).choices(range(KEYS), [1 / (place + 1) for place in range(KEYS)], k=10_007)
# The numbers of a producer's jobs begin with a multiple of this.
NUMBERS = 10**9
RECORD = struct.Struct("=qqq")


class Span(NamedTuple):
    """A call that enqueued `CALL` jobs from this number on, or the run of a handler; times in nanoseconds."""

    number: int
    began: int
    ended: int


class Found(NamedTuple):
    """What one run of it gave."""

    jobs: int
    misplaced: int
    lost: int
    doubled: int
    stall_resizing_ms: float
    stall_else_ms: float
    drained_seconds: float


def measure(run: Run) -> None:
    seconds = 1.0 if run.is_quick else 5.0
    most_ahead = run.size(1_000, 200)
    found = [resize(run.server, seconds, most_ahead) for _ in run.repeats()]
    run.state("order violations", "", [each.misplaced for each in found], at_most=0)
    run.state("jobs lost", "", [each.lost for each in found], at_most=0)
    run.state("jobs doubled", "", [each.doubled for each in found], at_most=0)
    stalls, others = [each.stall_resizing_ms for each in found], [each.stall_else_ms for each in found]
    run.compare("longest producer stall, resizing", "ms", stalls, "at other times", others)
    run.state("until the old map was drained, the longer", "s", [each.drained_seconds for each in found])
    run.note(f"{min(each.jobs for each in found):,} jobs or more a repeat; {seconds:g} s or more with each size")
    run.note(f"{PRODUCERS} producers in calls of {CALL}, {WORKERS} workers, {KEYS} keys, up to {most_ahead:,} waiting")


def resize(server: Server, seconds: float, most_ahead: int) -> Found:
    """Change the number of partitions under load, let everything drain, and judge."""
    gate, pace = Gate(), Pace(most_ahead)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(server.database())
        connection = stack.enter_context(connect(url))
        app, _ = _declare(url, folder)
        stack.enter_context(app)
        app.migrate()
        workers = [stack.enter_context(running(_work, url, folder)) for _ in range(WORKERS)]
        producers = [
            stack.enter_context(running(_produce, url, folder, gate, pace, number)) for number in range(PRODUCERS)
        ]
        gate.wait_for(PRODUCERS)
        gate.open()

        def go_on(least_seconds: float, is_done: Callable[[], bool]) -> None:
            began = moved_at = time.monotonic()
            while time.monotonic() - began < least_seconds or not is_done():
                if any(process.exitcode not in (None, 0) for process in (*workers, *producers)):
                    raise RuntimeError("a process of this measurement ended too early; what it said stands above")
                if (now_done := completed(connection)) != pace.completed.value:
                    pace.completed.value, moved_at = now_done, time.monotonic()
                elif time.monotonic() - moved_at > PATIENCE_SECONDS:
                    return
                time.sleep(0.01)

        go_on(seconds, lambda: True)
        resizes = []
        for partitions in SIZES[1:]:
            began = time.monotonic_ns()
            app.resize(QUEUE, partitions=partitions)
            go_on(0, lambda: _is_drained(connection))
            resizes.append(Span(partitions, began, time.monotonic_ns()))
            go_on(seconds, lambda: True)
        pace.is_over.set()
        for producer in producers:
            producer.join()
        calls = _read(folder / "calls")
        go_on(0, lambda: completed(connection) >= len(calls) * CALL)
        return _found(connection, calls, _read(folder / "runs"), resizes)


def _found(connection: Connection, calls: Sequence[Span], runs: Sequence[Span], resizes: Sequence[Span]) -> Found:
    done, different = connection.execute(
        "select count(*), count(distinct job_id) from penstock.finished_job where outcome = 0"
    ).fetchone()
    times_run = Counter(each.number for each in runs)
    enqueued = {number: call for call in calls for number in range(call.number, call.number + CALL)}
    stalls: dict[bool, list[int]] = {True: [0], False: [0]}
    for call in calls:
        if call.number % NUMBERS == 0:
            continue  # A producer's first connects, before the load begins.
        is_resizing = any(call.began <= each.ended and each.began <= call.ended for each in resizes)
        stalls[is_resizing].append(call.ended - call.began)
    return Found(
        len(enqueued),
        _misplaced(enqueued, runs),
        max(len(enqueued) - different, len(enqueued.keys() - times_run.keys())),
        max(done - different, times_run.total() - len(times_run)),
        max(stalls[True]) / 1e6,
        max(stalls[False]) / 1e6,
        max(each.ended - each.began for each in resizes) / 1e9,
    )


def _misplaced(enqueued: dict[int, Span], runs: Sequence[Span]) -> int:
    """Runs that began before another of their key had ended, or after one that was enqueued later: in a call made when
    theirs had returned, or behind them by the same producer.
    """
    by_key: dict[int, list[Span]] = defaultdict(list)
    for each in sorted(runs, key=lambda each: each.began):
        by_key[_key_of(each.number)].append(each)
    misplaced = 0
    for of_key in by_key.values():
        busy_until, latest_call = 0, 0
        latest_numbers = [-1] * PRODUCERS
        for each in of_key:
            call, producer = enqueued[each.number], each.number // NUMBERS
            misplaced += each.began < busy_until or call.ended < latest_call or each.number < latest_numbers[producer]
            busy_until, latest_call = max(busy_until, each.ended), max(latest_call, call.began)
            latest_numbers[producer] = max(latest_numbers[producer], each.number)
    return misplaced


def _is_drained(connection: Connection) -> bool:
    """Whether nothing is left of any map but the newest."""
    return bool(
        connection.execute("select not exists (select from penstock.queue_map where state = 'replaced')").fetchone()[0]
    )


def _key_of(number: int) -> int:
    return DRAWN[number % len(DRAWN)]


def _declare(url: str, folder: Path) -> tuple[App, Any]:
    app = App(url)
    write = _recorder(folder / "runs")

    def note_run(number: int, key: int) -> None:
        began = time.monotonic_ns()
        write(Span(number, began, time.monotonic_ns()))

    return app, app.queue(QUEUE, order="key", partitions=SIZES[0]).task(key="key")(note_run)


def _work(url: str, folder: Path) -> None:
    app, _ = _declare(url, folder)
    with app:
        app.work()


def _produce(url: str, folder: Path, gate: Gate, pace: Pace, producer: int) -> None:
    """Enqueue, never further ahead than the pace allows, until it is over."""
    app, task = _declare(url, folder)
    write = _recorder(folder / "calls")
    first = number = producer * NUMBERS
    with app:
        while not pace.is_over.is_set():
            if number - first == CALL:
                gate.arrive()
            if (number - first) * PRODUCERS - pace.completed.value > pace.most_ahead:
                time.sleep(0.001)
                continue
            rows = [{"number": each, "key": _key_of(each)} for each in range(number, number + CALL)]
            began = time.monotonic_ns()
            task.enqueue_many(rows)
            write(Span(number, began, time.monotonic_ns()))
            number += CALL


def _recorder(path: Path) -> Callable[[Span], object]:
    """Appends to a file that any number of processes write to, a record in one write, so that they never mix."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    return lambda span: os.write(file, RECORD.pack(*span))


def _read(path: Path) -> list[Span]:
    return [Span(*record) for record in RECORD.iter_unpack(path.read_bytes())]
