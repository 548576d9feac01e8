"""Idempotency keys over four shards: eight producers all enqueue the same 10,000 keys, each in another order, and
repeat each call until it is acknowledged, while the servers are killed one after another. In the end there must be
one job a key, and every producer must have been given its id.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import psycopg

from bench.processes import Gate, processes, running
from bench.run import Run
from bench.server import Server, connect, started_server
from bench.workload import ARGUMENTS, declare
from penstock.errors import PenstockError

QUESTION = "Is a repeated idempotency key ever two jobs, over four shards, with kills?"

SHARDS = 4
PRODUCERS = 8
CALL = 20
KILL_EVERY_SECONDS = 1.0


def measure(run: Run) -> None:
    keys = run.size(10_000, 1_000)
    doubled, wrong, kills = [], [], []
    with ExitStack() as stack:
        servers = [run.server, *(stack.enter_context(started_server()) for _ in range(SHARDS - 1))]
        for _ in run.repeats():
            found = enqueue_all(servers, keys)
            doubled.append(found[0])
            wrong.append(found[1])
            kills.append(found[2])
    run.state("duplicates", "", doubled, at_most=0)
    run.state("ids that differ between producers", "", wrong, at_most=0)
    run.state("servers killed", "", kills, at_least=1)
    run.note(f"{keys:,} keys, {PRODUCERS} producers, calls of {CALL}, {SHARDS} servers, one killed each second")


def enqueue_all(servers: list[Server], keys: int) -> tuple[int, int, int]:
    """Duplicates, ids that differ, and how often a server was killed."""
    gate, given = Gate(), processes.SimpleQueue()
    is_over = threading.Event()
    kills = 0

    def kill() -> None:
        nonlocal kills
        for server in itertools.cycle(servers):
            if is_over.wait(KILL_EVERY_SECONDS):
                return
            server.kill()
            kills += 1

    with ExitStack() as stack:
        urls = [stack.enter_context(server.database()) for server in servers]
        app, _ = declare(urls, partitions=8)
        with app:
            app.migrate()
        for seed in range(PRODUCERS):
            stack.enter_context(running(enqueue_repeatedly, urls, gate, keys, seed, given))
        gate.wait_for(PRODUCERS)
        gate.open()
        killer = threading.Thread(target=kill)
        killer.start()
        answers: list[dict[str, int]] = [given.get() for _ in range(PRODUCERS)]
        is_over.set()
        killer.join()
        stored = Counter(key for url in urls for key in _stored(url))
    wrong = sum(1 for key in stored if len({answer[key] for answer in answers}) > 1)
    return sum(count - 1 for count in stored.values()) + abs(len(stored) - keys), wrong, kills


def enqueue_repeatedly(urls: list[str], gate: Gate, keys: int, seed: int, given: Any) -> None:
    app, task = declare(urls, partitions=8)
    names = [f"key-{number}" for number in range(keys)]
    random.Random(seed).shuffle(names)
    ids: dict[str, int] = {}
    with app:
        app.stats("bench")
        gate.arrive()
        for low in range(0, keys, CALL):
            call = names[low : low + CALL]
            jobs = [
                task.options(idempotency_key=name).job(**ARGUMENTS[int(name[4:]) % len(ARGUMENTS)]) for name in call
            ]
            while True:
                try:
                    ids.update(zip(call, app.enqueue_many(jobs, request_timeout=5.0), strict=True))
                    break
                except PenstockError:
                    time.sleep(0.05)
    given.put(ids)


def _stored(url: str) -> list[str]:
    while True:
        try:
            with connect(url) as connection:
                return [
                    row[0] for row in connection.execute("select attributes ->> 'idempotency_key' from penstock.job")
                ]
        except psycopg.OperationalError:
            time.sleep(0.1)
