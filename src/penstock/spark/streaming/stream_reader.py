"""A queue as a stream: `spark.readStream.format("penstock").option("queue", …)`.

Claiming is the driver's: a batch is planned from leases that are held already, and executors only read what they are
about. Spark asks for the next offset with the last one that it has committed, also after the last batch, when its own
call of `commit` does not come: that is when a batch is settled, in the same transaction that claims the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from penstock.clock import system
from penstock.spark.claiming.job_batch import build_job_batch
from penstock.spark.data_source.error_codes import encode_errors
from penstock.spark.streaming.consumer import Consumer
from penstock.spark.streaming.stream_offset import ClaimedRange, ShardOffset, StreamOffset
from penstock.spark.streaming.stream_options import read_stream_options
from penstock.storage.connection.database import Database
from penstock.storage.enqueue.job_group import RANGE
from penstock.storage.work.leases import read_jobs
from penstock.storage.work.set_aside import set_ends_aside
from penstock.storage.work.settle import End

__all__ = ["STREAM_COLUMNS", "JobStreamReader", "StreamPartition"]

STREAM_COLUMNS = StructType(
    [
        StructField("id", LongType()),
        StructField("task", StringType()),
        StructField("key", StringType()),
        StructField("args", StringType()),
        StructField("attempt", IntegerType()),
        StructField("tenant", StringType()),
    ]
)

FEWEST_JOBS_A_PARTITION = 1_000
# Spark asks for an offset up to a hundred times a second. Where the database had nothing it is asked again after this.
IDLE_SECONDS = 0.05
READ_SECONDS = 10.0


class StreamPartition(InputPartition):
    """Some leases of a batch, all of one shard, for one task to read."""

    def __init__(self, shard: int, url: str, worker: int, claimed: Sequence[ClaimedRange]) -> None:
        super().__init__(None)
        self.shard = shard
        self.url = url
        self.worker = worker
        self.claimed = list(claimed)


class JobStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark builds for a stream: once to plan its batches, and again wherever they are read."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        with encode_errors():
            self._stream_options = read_stream_options(options)
        self._consumer: Consumer | None = None
        # With Trigger.AvailableNow: how many jobs of those that waited at the start are still to be claimed.
        self._unclaimed: int | None = None
        self._looks_again_at = 0.0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return StreamOffset().write()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._stream_options.max_jobs)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with encode_errors():
            self._unclaimed = self._open_consumer().count_waiting()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        now = system.monotonic()
        if now < self._looks_again_at:
            return start
        with encode_errors():
            consumer = self._open_consumer()
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else consumer.count_waiting()
            if self._unclaimed is not None:
                most = min(most, self._unclaimed)
            done = StreamOffset.read(start)
            offset = consumer.claim_next(done, most)
        if offset == done:
            self._looks_again_at = now + IDLE_SECONDS
            return start
        if self._unclaimed is not None:
            self._unclaimed -= offset.jobs
        return offset.write()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        offset = StreamOffset.read(end)
        if start == end or not offset.jobs:
            return []
        with encode_errors():
            consumer = self._open_consumer()
            # A query that is started again calls this first, to repeat its last batch: whoever held that batch's leases
            # goes on renewing them.
            consumer.adopt(offset)
            size = max(FEWEST_JOBS_A_PARTITION, -(-offset.jobs // self._stream_options.partitions))
            return [
                StreamPartition(number, consumer.url_of(number), part.worker, some)
                for number, part in offset.by_shard
                for some in _split_leases(part, size)
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StreamPartition)  # noqa: S101
        claimed = partition.claimed
        database = Database(partition.url, pool_size=1, shard=partition.shard, is_alone=False)
        with encode_errors(), closing(database):
            stored = database.run(lambda connection: read_jobs(connection, claimed), timeout=READ_SECONDS)
            if stored.unreadable:
                # They are set aside and the batch goes on without them; its commit will find these leases gone.
                ends = [
                    End(each.lease, each.token, job % RANGE, each.range, "release")
                    for each in claimed
                    for job in each.jobs
                    if job in stored.unreadable
                ]
                reasons = [stored.unreadable[end.range * RANGE + end.position] for end in ends]
                database.run(
                    lambda connection: set_ends_aside(connection, partition.worker, "spark/stream", ends, reasons),
                    timeout=READ_SECONDS,
                )
        held = [(each, job) for each in claimed for job in each.jobs if job in stored]
        rows = [stored[job] for _, job in held]
        yield build_job_batch(rows, [each.task for each, _ in held], [each.attempt for each, _ in held])

    def commit(self, end: dict[str, Any]) -> None:
        with encode_errors():
            consumer = self._open_consumer()
            offset = StreamOffset.read(end)
            consumer.adopt(offset)
            consumer.settle(offset)

    def stop(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _open_consumer(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(self._stream_options)
        return self._consumer


def _split_leases(offset: ShardOffset, size: int) -> list[list[ClaimedRange]]:
    """The leases of a shard in parts of about so many jobs, each of consecutive ones."""
    parts: list[list[ClaimedRange]] = []
    some: list[ClaimedRange] = []
    jobs = 0
    for each in offset.claimed:
        some.append(each)
        jobs += len(each.positions)
        if jobs >= size:
            parts.append(some)
            some, jobs = [], 0
    return [*parts, some] if some else parts
