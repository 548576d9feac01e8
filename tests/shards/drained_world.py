"""Two shards with an ordered queue and a plain one, from which one is drained."""

from __future__ import annotations

import threading
from collections import defaultdict
from datetime import timedelta
from typing import Any

from penstock import App, Drain, Retry, Task
from penstock.routing.key_hash import partition_of
from penstock.shards.databases import Databases
from penstock.shards.membership import read_shards
from penstock.storage.catalogue.queues import find_queue


class World:
    """An ordered queue `o` and a plain one `p` on two shards; handlers do what the key or argument says."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        self.ran: dict[str, list[int]] = defaultdict(list)
        self.lock = threading.Lock()
        self.fails = {"bad"}
        self.app = App(shards=urls, request_timeout=10.0, lease=60.0)
        ordered = self.app.queue("o", order="key", partitions=2, on_dead="halt")
        plain = self.app.queue("p", partitions=2)

        @ordered.task(key="key", max_attempts=1)
        def handle(key: str, n: int, how: str = "") -> None:
            if how in self.fails:
                raise ValueError(how)
            with self.lock:
                self.ran[key].append(n)

        @ordered.task(key="key", max_attempts=5)
        def again(key: str, n: int) -> None:
            if "late" in self.fails:
                raise Retry(after=timedelta(hours=1))
            with self.lock:
                self.ran[key].append(n)

        @plain.task(max_attempts=1)
        def run(n: int, how: str = "") -> None:
            if how in self.fails:
                raise ValueError(how)
            with self.lock:
                self.ran["plain"].append(n)

        self.handle: Task[..., None] = handle
        self.again: Task[..., None] = again
        self.run: Task[..., None] = run
        self.app.databases  # noqa: B018

    @property
    def databases(self) -> Databases:
        return self.app.databases

    def key(self, shard: int, nth: int = 0) -> str:
        """A key of `o` that lives on a shard by the map of now."""
        entry = self.databases.read(lambda c: find_queue(c, "o"))
        keys = (f"k{n}" for n in range(10_000))
        places = entry.partition_shards
        return [k for k in keys if places[partition_of(k.encode(), entry.partition_count)] == shard][nth]

    def fetch(self, shard: int, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.databases.of(shard).run(lambda c: c.execute(statement, parameters).fetchall())

    def plain(self, shard: int, task: str = "run", **options: Any) -> int:
        """A job of `p` on a shard."""
        names = "".join(f", {name} => %s" for name in options)
        ((id_,),) = self.fetch(
            shard, f"select penstock.enqueue('p', %s, '{{\"n\": 1}}'{names})", task, *options.values()
        )
        return int(id_)

    def drain(self, shard: int, tries: int = 30) -> Drain:
        """Drain to the end, without a worker."""
        for _ in range(tries):
            done = self.app.drain_shard(shard)
            if done.state == "drained":
                return done
        raise AssertionError(done)

    def is_empty(self, shard: int) -> bool:
        return bool(self.fetch(shard, "select penstock.is_vacant()")[0][0])

    def work(self) -> None:
        self.app.work(until_idle=True)


def states(databases: Databases) -> dict[int, str]:
    return {entry.number: entry.state for entry in databases.lead.run(read_shards)}


def shard_of(job_id: int) -> int:
    return (job_id >> 10) & 1023
