"""From columns of jobs to ranges of a stage: what one task of Spark writes, or the server for one body.

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
from penstock.loading.destination import Destination
from penstock.loading.job_columns import JobColumns
from penstock.routing.router import KeyMap, route, route_keys
from penstock.storage.enqueue.job_group import RANGE
from penstock.storage.loads.stage import Stage, StagedRange

__all__ = ["StageWriter"]

# Each chunk is a connection and a transaction: large enough to be worth it, small enough to be held in memory.
CHUNK_ROWS = 131_072
CHUNK_BYTES = 64 * 1024 * 1024
Numbers = np.ndarray[Any, np.dtype[np.int64]]


class StageWriter:
    """Gathers and writes; `ranges` counts, shard by shard, what was written under the name `stage`."""

    def __init__(self, destination: Destination, load: str, first_unkeyed: int) -> None:
        self._destination = destination
        self.stage = secrets.token_hex(16)
        shards = destination.partition_shards
        self._writers = {
            number: Stage(destination.shards.urls[number], self.stage, load, destination.connections, shard=number)
            for number in set(shards)
        }
        self._shards = np.array(shards)
        self._key_map = KeyMap(shards, destination.homes, is_owned=destination.epoch is not None)
        # The partitions that rows without a key may go to: those whose shard answers, or all where none does.
        self._answering = np.array(
            [n for n, shard in enumerate(shards) if shard not in destination.shards.silent]
            or range(len(destination.partition_shards))
        )
        self._waiting: list[JobColumns] = []
        self._rows = 0
        self._bytes = 0
        # Rows without a key are shared out evenly over these partitions; each chunk begins with another of them.
        self._next_unkeyed = first_unkeyed
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
        table = JobColumns.combine(waiting)
        keys, idempotency_keys = (table.column(name).combine_chunks() for name in ("key", "idempotency_key"))
        partitions = self.find_partitions(keys, idempotency_keys)
        codes = self._group_codes(table, partitions)
        order = np.argsort(codes, kind="stable")
        shards = self._shards[partitions[order]]
        for number in np.unique(shards).tolist():
            chosen = order[shards == number]
            self._write(number, table.take(pa.array(chosen)), partitions[chosen], codes[chosen])

    def _write(self, shard: int, table: pa.Table, partitions: Numbers, codes: Numbers) -> None:
        """Write sorted jobs to their shard."""
        ranges = list(self._cut_ranges(table, partitions, codes))
        ids = np.array(self._destination.partition_ids, dtype=np.int32)[partitions]
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

    def find_partitions(self, keys: pa.Array, idempotency_keys: pa.Array | None) -> Numbers:
        """The partition's number of each job, by its key, or by where its idempotency key is looked for."""
        placed = self._partitions_by_key(keys)
        if idempotency_keys is None or idempotency_keys.null_count == len(keys) or len(self._writers) == 1:
            return placed
        # An idempotency key lives on the shard that its own hash names. Where keys have an order, that of a keyed job
        # lives with its ordering key instead.
        by_itself = pc.is_valid(idempotency_keys)
        if self._destination.epoch is not None:
            by_itself = pc.and_(by_itself, pc.is_null(keys))
        for row in np.flatnonzero(np.asarray(by_itself)).tolist():
            number, home = route(self._key_map, keys[row].as_py(), idempotency_keys[row].as_py())
            if number is None:
                numbers = self._partitions_on(home)
                number = numbers[row % len(numbers)]
            placed[row] = number
        return placed

    def _partitions_by_key(self, keys: pa.Array) -> Numbers:
        answering = len(self._answering)
        encoded = keys.dictionary_encode()
        numbers = np.array(route_keys(self._key_map, encoded.dictionary.to_pylist()), dtype=np.int64)
        if not keys.null_count:
            placed: Numbers = numbers[np.asarray(encoded.indices)]
            return placed
        turns = self._answering[(np.arange(len(keys)) * answering // len(keys) + self._next_unkeyed) % answering]
        self._next_unkeyed += 1
        indices = np.asarray(encoded.indices.fill_null(0))
        return np.where(np.asarray(keys.is_null()), turns, numbers[indices] if len(numbers) else 0)

    def _partitions_on(self, home: int | None) -> Sequence[int]:
        """The partitions on the shard where an idempotency key is looked for."""
        numbers = [] if home is None else self._key_map.numbers_on(home)
        if not numbers:
            raise PenstockError(
                f"queue {self._destination.queue!r} has no partition on shard {home}, where some of its idempotency "
                "keys are looked for: is that shard being drained? run the load again when that is done"
            )
        return numbers

    def _group_codes(self, table: pa.Table, partitions: Numbers) -> Numbers:
        """A number for each job; jobs with the same number may share a range."""
        codes = partitions * 10 + np.asarray(table.column("priority")).astype(np.int64)
        apart = ["run_at"] if self._destination.epoch is not None else ["run_at", "task"]
        for name in apart:
            column = table.column(name).combine_chunks()
            if name == "run_at" and self._destination.epoch is not None and column.null_count < len(column):
                # A `run_at` in the past is dropped: the job is ready at once, in order among those that have none.
                column = pc.if_else(pc.less_equal(column, pa.scalar(system.now(), column.type)), None, column)
            encoded = column.dictionary_encode()
            if len(encoded.dictionary):
                codes = codes * (len(encoded.dictionary) + 1) + np.asarray(encoded.indices.fill_null(-1)) + 1
        return codes

    def _cut_ranges(self, table: pa.Table, partitions: Numbers, codes: Numbers) -> Iterator[StagedRange]:
        """The ranges that sorted jobs fall into."""
        has_key = np.asarray(pc.is_valid(table.column("idempotency_key")))
        firsts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
        ends = np.append(firsts[1:], len(codes))
        priorities, tasks, run_ats = (table.column(name) for name in ("priority", "task", "run_at"))
        for group_start, group_end in zip(firsts.tolist(), ends.tolist(), strict=True):
            for start in range(group_start, group_end, RANGE):
                end = min(start + RANGE, group_end)
                yield StagedRange(
                    size=end - start,
                    partition_id=self._destination.partition_ids[int(partitions[start])],
                    priority=priorities[start].as_py(),
                    task="" if self._destination.epoch is not None else tasks[start].as_py(),
                    run_at=run_ats[start].as_py(),
                    has_idempotency_keys=bool(has_key[start:end].any()),
                    epoch=self._destination.epoch,
                )
