"""Producers and workers in processes of their own, as they are in life.

A process that `running` started ends with its block, asked gently first, and ends by itself if this program is killed.
Producers warm up, arrive at a gate and wait until it opens, so that starting them is not measured.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from bench.workload import QUEUE, calls_of, declare

__all__ = [
    "WARM_UP_CALLS",
    "Gate",
    "Pace",
    "processes",
    "produce",
    "produce_at_pace",
    "resident_bytes",
    "running",
    "work",
]

# Spawned, not forked: they share nothing with this program but what they are given.
processes = multiprocessing.get_context("spawn")
WARM_UP_CALLS = 5
STOP_SECONDS = 30.0
NO_OPTIONS: Mapping[str, Any] = {}


class Gate:
    """Where producers wait until all are there."""

    def __init__(self) -> None:
        self._arrived = processes.Semaphore(0)
        self._opened = processes.Event()

    def arrive(self) -> None:
        self._arrived.release()
        self._opened.wait()

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            if not self._arrived.acquire(timeout=60):
                raise RuntimeError("a producer did not get ready; what it said stands above")

    def open(self) -> None:
        self._opened.set()


class Pace:
    """How far a producer may be ahead of what is completed, and when it has to end."""

    def __init__(self, most_ahead: int) -> None:
        self.most_ahead = most_ahead
        self.completed = processes.Value("q", 0, lock=False)
        self.is_over = processes.Event()


@contextmanager
def running(target: Callable[..., None], *arguments: Any) -> Iterator[BaseProcess]:
    """A process for as long as the block lasts."""
    process = processes.Process(target=_run, args=(target, *arguments), daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.terminate()
        process.join(STOP_SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()


def work(url: str, concurrency: int = 16, queue: str = QUEUE, options: Mapping[str, Any] = NO_OPTIONS) -> None:
    """A worker; SIGTERM ends it gently. `options`: as `declare` takes them."""
    app, _ = declare(url, queue, **options)
    with app:
        app.work(concurrency=concurrency)


def produce(
    url: str,
    gate: Gate,
    calls: int,
    size: int,
    queue: str = QUEUE,
    seconds: Any = None,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> None:
    """Enqueue so many calls of so many jobs; the time that took is put into `seconds`."""
    rows = calls_of(size)
    app, task = declare(url, queue, **options)
    with app:
        for number in range(WARM_UP_CALLS):
            task.enqueue_many(rows[number])
        gate.arrive()
        started = time.perf_counter()
        for number in range(calls):
            task.enqueue_many(rows[number % len(rows)])
        if seconds is not None:
            seconds.put(time.perf_counter() - started)


def produce_at_pace(url: str, gate: Gate, pace: Pace, size: int, threads: int) -> None:
    """Enqueue, never further ahead than the pace allows, until it is over. A size of 1 means one call of `enqueue` a
    job. Starts with 1,000 jobs of warm-up, counted as all others."""
    rows = calls_of(max(size, 1))
    app, task = declare(url)
    enqueued = [0] * threads

    def enqueue(thread: int) -> None:
        number = thread
        while not pace.is_over.is_set():
            if sum(enqueued) - pace.completed.value > pace.most_ahead:
                time.sleep(0.001)
                continue
            call = rows[number % len(rows)]
            number += threads
            if size == 1:
                task.enqueue(**call[0])
            else:
                task.enqueue_many(call)
            enqueued[thread] += size

    with app:
        task.enqueue_many(calls_of(1_000)[0])
        gate.arrive()
        runners = [threading.Thread(target=enqueue, args=(thread,)) for thread in range(threads)]
        for runner in runners:
            runner.start()
        for runner in runners:
            runner.join()


def resident_bytes(process: BaseProcess) -> int:
    """How much memory a process has in use."""
    said = subprocess.run(["ps", "-o", "rss=", "-p", str(process.pid)], capture_output=True, text=True, check=True)
    return int(said.stdout) * 1024


def _run(target: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    target(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
