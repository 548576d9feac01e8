"""Stages and publishes as the writer's tasks and driver do, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import pyarrow as pa

from penstock import App
from penstock.shards.load_commit import Published
from penstock.shards.publishing import publish
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.loads.stage import Stage, StagedRange

__all__ = ["Loader"]

_stages = count(1)


class Loader:
    """Loads into one queue."""

    def __init__(self, app: App, queue: str) -> None:
        self.app = app
        self.queue = queue
        self._shards: dict[str, int] = {}

    def stage(
        self, *values: int, key: str | None = None, once: str | None = None, partition: int = 0
    ) -> tuple[str, int]:
        """Stage a job a value, each in a range of its own, on the shard of that partition; its name and ranges."""
        entry = self.app.databases.read(lambda connection: find_queue(connection, self.queue))
        shard = entry.partition_shards[partition]
        name = f"stage-{next(_stages)}"
        self._shards[name] = shard
        columns = {
            "partition_id": pa.array([entry.partition_ids[partition]] * len(values), pa.int32()),
            "priority": pa.array([5] * len(values), pa.int16()),
            "task": ["t"] * len(values),
            "key": pa.array([None if key is None else key.encode()] * len(values), pa.binary()),
            "args": [f'{{"n":{value}}}' for value in values],
        }
        if once is not None:
            texts = pa.array([f'{{"idempotency_key":"{once}-{value % 10}"}}' for value in values])
            columns["attributes"] = pa.ExtensionArray.from_storage(pa.json_(pa.string()), texts)
        epoch = entry.epoch if entry.is_owned else None
        ranges = [
            StagedRange(
                1, entry.partition_ids[partition], 5, "" if entry.is_owned else "t", None, once is not None, epoch
            )
            for _ in values
        ]
        Stage(self.app.databases.of(shard).url, name, "load", 4).write(pa.table(columns), ranges)
        return name, len(values)

    def by_shard(self, *stages: tuple[str, int]) -> dict[int, list[tuple[str, int]]]:
        """Stages by where they lie."""
        found: dict[int, list[tuple[str, int]]] = {}
        for stage in stages:
            found.setdefault(self._shards.get(stage[0], 1), []).append(stage)
        return found

    def publish(
        self,
        name: str,
        *stages: tuple[str, int],
        batch: int = 0,
        origin: str | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> Published:
        """Publish them in this order."""
        shards = self.app.databases
        homes = shards.read(lambda connection: find_queue(connection, self.queue)).homes
        return publish(
            shards,
            name,
            self.queue,
            batch,
            self.by_shard(*stages),
            is_stream=origin is not None,
            homes=homes,
            origin=origin,
            trace=trace,
        )
