"""Two shards, the second behind a proxy where it is to fail, and jobs put on the one or the other."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from tests.fault.proxy import Proxy

from penstock import App
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.enqueue.job_group import Destination, JobGroup
from penstock.storage.enqueue.steps import drive
from penstock.storage.enqueue.write import write_groups
from penstock.worker import Worked

__all__ = ["TwoSites"]


class TwoSites:
    """An app on both shards; `direct` are their URLs past the proxy."""

    def __init__(self, urls: Sequence[str], *, is_distant: bool = False, **options: Any) -> None:
        self.direct = {1: urls[0], 2: urls[1]}
        self.proxy = Proxy(urls[1])
        self.urls = [urls[0], self.proxy.url if is_distant else urls[1]]
        self.options = {"lease": 60.0, **options}
        self.app = App(shards=self.urls, **self.options)
        self.app.queue("q", partitions=2)
        assert [database.shard for database in self.app.databases] == [1, 2]
        # Past the app and its breaker, one connection for each shard.
        self._connections = {
            number: psycopg.connect(url, autocommit=True, prepare_threshold=None) for number, url in self.direct.items()
        }

    def put(self, shard: int, count: int = 1, task: str = "t", **args: Any) -> list[int]:
        """Jobs on a shard, in one call; their ids. Each has its number as `n` and its shard as `at`."""
        connection = self._connections[shard]
        queue = find_queue(connection, "q")
        partition = queue.partition_ids[queue.partition_shards.index(shard)]
        rows = [json.dumps({"n": n, "at": shard, **args}).encode() for n in range(count)]
        ids = [0] * count
        group = JobGroup(Destination(queue.id, partition, 4, task), range(count), rows)
        with connection.transaction():
            drive(connection, write_groups([group], ids))
        return ids

    def execute(self, shard: int, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Ask a shard, past the proxy."""
        with psycopg.connect(self.direct[shard], autocommit=True) as connection:
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def left(self, shard: int) -> int:
        """Jobs of a shard that have not ended."""
        (row,) = self.execute(shard, "select coalesce(sum(opened), 0)::int from penstock.depth")
        return int(row[0])

    @contextmanager
    def working(self, **options: Any) -> Iterator[Callable[[], Worked]]:
        """Work beside the block; what came of it can be waited for."""
        came: list[Worked] = []
        problems: list[BaseException] = []

        def run() -> None:
            try:
                came.append(self.app.work(**options))
            except BaseException as error:
                problems.append(error)

        thread = threading.Thread(target=run)
        thread.start()

        def result() -> Worked:
            thread.join(60)
            assert not problems, problems
            assert came, "the worker has not ended"
            return came[0]

        try:
            yield result
        finally:
            while thread.is_alive():
                self.app.stop()
                thread.join(0.2)
        assert not problems, problems

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self.app.close()
        self.proxy.close()
