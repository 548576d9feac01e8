"""Calls that meet: threads and tasks that enqueue one by one at the same time, against one `enqueue_many` of as many
jobs; and how long one call takes beside few others, against the same with a transaction for each call. The sides take
turns in blocks, on one database, so that all meet the same noise. The delay is that of a proxy in a process of its own.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from bench.processes import processes
from bench.run import Run
from bench.workload import ARGUMENTS, calls_of, declare
from penstock import App
from penstock.client.waiting_line import MOST_UNDER_WAY

QUESTION = "What do calls that meet gain, and what does it cost those who hardly do?"

THREADS = 16
TASKS = 200
DELAY_SECONDS = 0.005
# As many transactions as there are callers: nobody waits in line.
ALL = 1_000_000


def measure(run: Run) -> None:
    blocks = run.size(12, 2)
    threads, tasks, of_threads, of_tasks = [], [], [], []
    together: dict[str, list[float]] = {}
    apart: dict[str, list[float]] = {}
    for _ in run.repeats():
        with run.server.database() as url:
            app, task = declare(url)
            with app:
                rates = _take_turns(task, blocks)
                for each, rate in zip((threads, of_threads, tasks, of_tasks), rates, strict=True):
                    each.append(rate)
                _compare_waits(app, task, blocks, "", together, apart)
        with run.server.database() as url, delayed(url) as far:
            app, task = declare(far)
            with app:
                name = f", {DELAY_SECONDS * 1000:g} ms away"
                _compare_waits(app, task, blocks // 2, name, together, apart)
    many = "enqueue_many in calls of"
    run.compare(f"enqueue by {THREADS} threads", "jobs/s", threads, f"{many} {THREADS}", of_threads, at_least=0.5)
    run.compare(f"aenqueue by {TASKS} tasks", "jobs/s", tasks, f"{many} {TASKS}", of_tasks, at_least=0.6)
    for name, waits in together.items():
        bar = 1.05 if name.startswith("1 ") else 1.2
        run.compare(f"p50 of {name}", "ms", waits, "a transaction for each", apart[name], at_most=bar)
    run.note(f"no worker at work; {blocks} blocks a side and repeat; 1.05 stands for 'not above, within noise'")


def _take_turns(task: Any, blocks: int) -> list[float]:
    """Jobs a second: of threads, of calls as large as they are many, of tasks, and of calls as large as those."""
    seconds = [0.0] * 4
    for turn in range(blocks + 1):
        took = [
            _seconds_of_threads(task, THREADS, 30)[0],
            _seconds_of_calls(task, THREADS, 30),
            _seconds_of_tasks(task, TASKS, 10),
            _seconds_of_calls(task, TASKS, 10),
        ]
        if turn:  # The first is for whatever has to be made once.
            seconds = [before + each for before, each in zip(seconds, took, strict=True)]
    jobs = [THREADS * 30, THREADS * 30, TASKS * 10, TASKS * 10]
    return [blocks * count / each for count, each in zip(jobs, seconds, strict=True)]


def _compare_waits(
    app: App, task: Any, blocks: int, name: str, together: dict[str, list[float]], apart: dict[str, list[float]]
) -> None:
    """The median milliseconds of a call, as it is and with a transaction for each, by turns."""
    task.enqueue(**ARGUMENTS[0])
    (line,) = app.sender.producer._merger._lines.values()
    for callers in (1, 2, 4):
        found: dict[int, list[float]] = {MOST_UNDER_WAY: [], ALL: []}
        for turn in range(2 * blocks + 1):
            for most in (MOST_UNDER_WAY, ALL) if turn % 2 else (ALL, MOST_UNDER_WAY):
                line._most = most
                waits = _seconds_of_threads(task, callers, 40)[1]
                if turn:
                    found[most] += waits
        line._most = MOST_UNDER_WAY
        title = f"{callers} caller{'s' * (callers > 1)}{name}"
        together.setdefault(title, []).append(median(found[MOST_UNDER_WAY]) * 1000)
        apart.setdefault(title, []).append(median(found[ALL]) * 1000)


def _seconds_of_threads(task: Any, callers: int, calls: int) -> tuple[float, list[float]]:
    """How long it took in all, and each call."""
    begin = threading.Barrier(callers + 1)
    waits: list[float] = []

    def call(number: int) -> None:
        begin.wait()
        for row in ARGUMENTS[number * calls : (number + 1) * calls]:
            began = time.perf_counter()
            task.enqueue(**row)
            waits.append(time.perf_counter() - began)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    begin.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began, waits


def _seconds_of_tasks(task: Any, tasks: int, calls: int) -> float:
    async def call(number: int) -> None:
        for row in ARGUMENTS[number * calls : (number + 1) * calls]:
            await task.aenqueue(**row)

    async def call_all() -> float:
        began = time.perf_counter()
        await asyncio.gather(*(call(number) for number in range(tasks)))
        return time.perf_counter() - began

    return asyncio.run(call_all())


def _seconds_of_calls(task: Any, size: int, calls: int) -> float:
    rows = calls_of(size)[:calls]
    began = time.perf_counter()
    for each in rows:
        task.enqueue_many(each)
    return time.perf_counter() - began


@contextmanager
def delayed(url: str) -> Iterator[str]:
    """The URL of a proxy from which the server is so far away, there and back."""
    parts = urlsplit(url)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    proxy = processes.Process(target=_forward_all, args=(listener, (parts.hostname, parts.port)), daemon=True)
    proxy.start()
    try:
        yield url.replace(f":{parts.port}/", f":{port}/") + "?sslmode=disable&gssencmode=disable"
    finally:
        proxy.terminate()
        proxy.join()
        listener.close()


def _forward_all(listener: socket.socket, server: tuple[str, int]) -> None:
    while True:
        client, _ = listener.accept()
        beyond = socket.create_connection(server)
        for each in (client, beyond):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for pair in ((client, beyond), (beyond, client)):
            threading.Thread(target=_forward, args=pair, daemon=True).start()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    try:
        while chunk := source.recv(1 << 20):
            time.sleep(DELAY_SECONDS / 2)
            sink.sendall(chunk)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return
