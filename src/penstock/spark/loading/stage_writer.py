"""From columns of jobs to ranges of a stage: what one task writes.

Jobs are gathered into chunks of some hundred thousand, sorted into ranges of one partition, priority and time (and on a
plain queue of one task), without changing the order within these, and written. Nothing of it can be claimed before
the load is published, so a chunk is committed by itself, on each shard that has some of it: no transaction lasts as
long as the task.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.clock import system
from penstock.errors import PenstockError
from penstock.routing.router import KeyMap, route, route_keys
from penstock.spark.loading.load_plan import LoadPlan
from penstock.spark.loading.row_reader import JobColumns
from penstock.storage.enqueue import RANGE
from penstock.storage.stage import Stage, StagedRange

__all__ = ["Staging"]

# Each chunk is a connection and a transaction: large enough to be worth it, small enough to be held in memory.
CHUNK_ROWS = 131_072
CHUNK_BYTES = 64 * 1024 * 1024
Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Staging:
    """Gathers and writes; `ranges` counts, shard by shard, what was written under the name `stage`."""

    def __init__(self, plan: LoadPlan, load: str, spark_partition: int) -> None:
        self._plan = plan
        self.stage = secrets.token_hex(16)
        shards = plan.partition_shards
        self._writers = {
            number: Stage(plan.reach.urls[number], self.stage, load, plan.connections, shard=number)
            for number in set(shards)
        }
        self._shards = np.array(shards)
        self._key_map = KeyMap(shards, plan.homes, is_owned=plan.epoch is not None)
        # Rows that may go anywhere do not go where nobody answers.
        self._anywhere = np.array(
            [n for n, shard in enumerate(shards) if shard not in plan.reach.silent] or range(len(shards))
        )
        self._waiting: list[JobColumns] = []
        self._rows = 0
        self._bytes = 0
        # Where rows without a key go: an equal share to each partition, beginning with another in each chunk.
        self._turn = spark_partition
        self.ranges: Counter[int] = Counter()

    def add(self, jobs: JobColumns) -> None:
        """Take jobs in; write where there are enough."""
        self._waiting.append(jobs)
        self._rows += len(jobs)
        self._bytes += jobs.args.nbytes
        if self._rows >= CHUNK_ROWS or self._bytes >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was taken in."""
        waiting, self._waiting, rows, self._rows, self._bytes = self._waiting, [], self._rows, 0, 0
        if not rows:
            return
        table = pa.table(
            {
                "task": pa.chunked_array([each.task for each in waiting]),
                "key": pa.chunked_array([each.key for each in waiting]),
                "args": pa.chunked_array([each.args for each in waiting]),
                "priority": pa.chunked_array([each.priority for each in waiting]),
                "run_at": pa.chunked_array([each.run_at for each in waiting]),
                "attributes": pa.chunked_array([each.attributes for each in waiting]),
                "once": pa.chunked_array([each.once for each in waiting]),
            }
        ).combine_chunks()
        partitions = self.partitions_of(table.column("key").combine_chunks(), table.column("once").combine_chunks())
        codes = self._codes(table, partitions)
        order = np.argsort(codes, kind="stable")
        shards = self._shards[partitions[order]]
        for number in np.unique(shards).tolist():
            chosen = order[shards == number]
            self._write(number, table.take(pa.array(chosen)), partitions[chosen], codes[chosen])

    def _write(self, shard: int, table: pa.Table, partitions: Numbers, codes: Numbers) -> None:
        """Write sorted jobs to their shard."""
        once = np.asarray(pc.is_valid(table.column("once")))
        ranges = list(self._ranges(table, partitions, codes, once))
        ids = np.array(self._plan.partition_ids, dtype=np.int32)[partitions]
        columns = {
            "partition_id": pa.array(ids),
            "priority": table.column("priority"),
            "task": table.column("task"),
            "key": table.column("key"),
            "args": table.column("args"),
        }
        if table.column("attributes").null_count < table.num_rows:
            texts = table.column("attributes").combine_chunks()
            columns["attributes"] = pa.ExtensionArray.from_storage(pa.json_(pa.string()), texts)
        self._writers[shard].write(pa.table(columns), ranges)
        self.ranges[shard] += len(ranges)

    def partitions_of(self, keys: pa.Array, once: pa.Array | None) -> Numbers:
        """The partition's number of each job, by its key, or by where its idempotency key is looked for."""
        placed = self._by_key(keys)
        if once is None or once.null_count == len(once) or len(self._writers) == 1:
            return placed
        # Where keys have an order, an idempotency key lives with its ordering key.
        apart = pc.is_valid(once) if self._plan.epoch is None else pc.and_(pc.is_valid(once), pc.is_null(keys))
        for row in np.flatnonzero(np.asarray(apart)).tolist():
            number, home = route(self._key_map, keys[row].as_py(), once[row].as_py())
            if number is None:
                numbers = self._numbers_on(home)
                number = numbers[row % len(numbers)]
            placed[row] = number
        return placed

    def _by_key(self, keys: pa.Array) -> Numbers:
        anywhere = len(self._anywhere)
        encoded = keys.dictionary_encode()
        numbers = np.array(route_keys(self._key_map, encoded.dictionary.to_pylist()), dtype=np.int64)
        if not keys.null_count:
            placed: Numbers = numbers[np.asarray(encoded.indices)]
            return placed
        turns = self._anywhere[(np.arange(len(keys)) * anywhere // len(keys) + self._turn) % anywhere]
        self._turn += 1
        indices = np.asarray(encoded.indices.fill_null(0))
        return np.where(np.asarray(keys.is_null()), turns, numbers[indices] if len(numbers) else 0)

    def _numbers_on(self, home: int | None) -> Sequence[int]:
        """The partitions on the shard where an idempotency key is looked for."""
        numbers = [] if home is None else self._key_map.numbers_on(home)
        if not numbers:
            raise PenstockError(
                f"queue {self._plan.queue!r} has no partition on shard {home}, where some of its idempotency keys are "
                "looked for: is that shard being drained? run the load again when that is done"
            )
        return numbers

    def _codes(self, table: pa.Table, partitions: Numbers) -> Numbers:
        """A number for each job: the same for those that may share a range."""
        codes = partitions * 10 + np.asarray(table.column("priority")).astype(np.int64)
        apart = ["run_at"] if self._plan.epoch is not None else ["run_at", "task"]
        for name in apart:
            column = table.column(name).combine_chunks()
            if name == "run_at" and self._plan.epoch is not None and column.null_count < len(column):
                # A time that has come is no time: such jobs stand among those that have none, in order.
                column = pc.if_else(pc.less_equal(column, pa.scalar(system.now(), column.type)), None, column)
            encoded = column.dictionary_encode()
            if len(encoded.dictionary):
                codes = codes * (len(encoded.dictionary) + 1) + np.asarray(encoded.indices.fill_null(-1)) + 1
        return codes

    def _ranges(
        self, table: pa.Table, partitions: Numbers, codes: Numbers, once: np.ndarray[Any, Any]
    ) -> Iterator[StagedRange]:
        """The ranges that sorted jobs fall into."""
        firsts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
        ends = np.append(firsts[1:], len(codes))
        priorities, tasks, run_ats = (table.column(name) for name in ("priority", "task", "run_at"))
        for group_start, group_end in zip(firsts.tolist(), ends.tolist(), strict=True):
            for start in range(group_start, group_end, RANGE):
                end = min(start + RANGE, group_end)
                yield StagedRange(
                    size=end - start,
                    partition_id=self._plan.partition_ids[int(partitions[start])],
                    priority=priorities[start].as_py(),
                    task="" if self._plan.epoch is not None else tasks[start].as_py(),
                    run_at=run_ats[start].as_py(),
                    has_once=bool(once[start:end].any()),
                    epoch=self._plan.epoch,
                )
