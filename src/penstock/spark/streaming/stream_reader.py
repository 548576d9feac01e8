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
from penstock.errors import InvalidInput
from penstock.model.limits import checked_count, checked_name, checked_seconds
from penstock.spark.claiming.job_batch import record_batch
from penstock.spark.data_source.error_codes import encode_errors
from penstock.spark.data_source.options import refuse_unknown
from penstock.spark.streaming.consumer import Consumer, Wanted
from penstock.spark.streaming.stream_offset import Claimed, ClaimOffset, StreamOffset
from penstock.storage.aside import set_ends_aside
from penstock.storage.claim import read_jobs
from penstock.storage.database import Database, checked_urls
from penstock.storage.enqueue import RANGE
from penstock.storage.settle import End

__all__ = ["CLAIMED", "ClaimPartition", "ClaimReader"]

CLAIMED = StructType(
    [
        StructField("id", LongType()),
        StructField("task", StringType()),
        StructField("key", StringType()),
        StructField("args", StringType()),
        StructField("attempt", IntegerType()),
        StructField("tenant", StringType()),
    ]
)

DEFAULT_MAX_JOBS = 10_000
DEFAULT_LEASE_SECONDS = 60.0
DEFAULT_PARTITIONS = 8
MOST_MAX_JOBS = 1_000_000
FEWEST_JOBS_A_PARTITION = 1_000
# Spark asks up to a hundred times a second; where nothing was found it is looked again after this.
REST_SECONDS = 0.05
READ_SECONDS = 10.0


class ClaimPartition(InputPartition):
    """Some leases of a batch, all of one shard, for one task to read."""

    def __init__(self, shard: int, url: str, worker: int, claimed: Sequence[Claimed]) -> None:
        super().__init__(None)
        self.shard = shard
        self.url = url
        self.worker = worker
        self.claimed = list(claimed)


class ClaimReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark builds for a stream: once to plan its batches, and again wherever they are read."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        with encode_errors():
            self._wanted, self._max_jobs, self._partitions = _read_options(options)
        self._consumer: Consumer | None = None
        # With Trigger.AvailableNow: how many jobs are still to be claimed.
        self._left: int | None = None
        self._rests_until = 0.0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return StreamOffset().write()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._max_jobs)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with encode_errors():
            self._left = self._opened().waiting()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        now = system.monotonic()
        if now < self._rests_until:
            return start
        with encode_errors():
            consumer = self._opened()
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else consumer.waiting()
            if self._left is not None:
                most = min(most, self._left)
            done = StreamOffset.read(start)
            offset = consumer.next(done, most)
        if offset == done:
            self._rests_until = now + REST_SECONDS
            return start
        if self._left is not None:
            self._left -= offset.jobs
        return offset.write()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        offset = StreamOffset.read(end)
        if start == end or not offset.jobs:
            return []
        with encode_errors():
            consumer = self._opened()
            # Started again, a query begins here: its leases must be renewed while it repeats the batch.
            consumer.adopt(offset)
            size = max(FEWEST_JOBS_A_PARTITION, -(-offset.jobs // self._partitions))
            return [
                ClaimPartition(number, consumer.url_of(number), part.worker, some)
                for number, part in offset.parts
                for some in _shared_out(part, size)
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ClaimPartition)  # noqa: S101
        claimed = partition.claimed
        database = Database(partition.url, pool_size=1, shard=partition.shard, is_alone=False)
        with encode_errors(), closing(database):
            stored = database.run(lambda connection: read_jobs(connection, claimed), timeout=READ_SECONDS)
            if stored.unreadable:
                # The batch goes on without them. Committed, it finds that it does not hold them any more.
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
        yield record_batch(rows, [each.task for each, _ in held], [each.attempt for each, _ in held])

    def commit(self, end: dict[str, Any]) -> None:
        with encode_errors():
            consumer = self._opened()
            offset = StreamOffset.read(end)
            consumer.adopt(offset)
            consumer.settle(offset)

    def stop(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _opened(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(self._wanted)
        return self._consumer


def _shared_out(offset: ClaimOffset, size: int) -> list[list[Claimed]]:
    """The leases of a shard in parts of about so many jobs, each of consecutive ones."""
    parts: list[list[Claimed]] = []
    some: list[Claimed] = []
    jobs = 0
    for each in offset.claimed:
        some.append(each)
        jobs += len(each.positions)
        if jobs >= size:
            parts.append(some)
            some, jobs = [], 0
    return [*parts, some] if some else parts


def _read_options(options: Mapping[str, str]) -> tuple[Wanted, int, int]:
    given = {name.lower(): value for name, value in options.items()}
    refuse_unknown(given, ("url", "queue", "max_jobs", "tasks", "lease", "partitions"), "a stream of jobs")
    for name in ("url", "queue"):
        if name not in given:
            raise InvalidInput(name, f'it is missing; write .option("{name}", …)')
    tasks = [checked_name("tasks", task.strip()) for task in given["tasks"].split(",")] if "tasks" in given else None
    lease = _number("lease", given.get("lease", str(DEFAULT_LEASE_SECONDS)))
    wanted = Wanted(
        "\n".join(checked_urls(given["url"])),
        checked_name("queue", given["queue"]),
        None if tasks is None else tuple(tasks),
        checked_seconds("lease", lease),
    )
    max_jobs = _number("max_jobs", given.get("max_jobs", str(DEFAULT_MAX_JOBS)))
    partitions = _number("partitions", given.get("partitions", str(DEFAULT_PARTITIONS)))
    return (
        wanted,
        checked_count("max_jobs", max_jobs, most=MOST_MAX_JOBS),
        checked_count("partitions", partitions, most=10_000),
    )


def _number(field: str, text: str) -> int | float:
    try:
        number = float(text)
    except ValueError:
        raise InvalidInput(field, f"{text!a} is no number") from None
    return int(number) if number.is_integer() else number
