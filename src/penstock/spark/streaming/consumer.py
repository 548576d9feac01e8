"""The consumer behind a stream of jobs: a shard consumer on each shard that has partitions of the queue.

A batch is what all of them claimed together. One whose shard is away claims nothing, and settles what it owes when that
is back; the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from penstock.clock import system
from penstock.errors import InvalidInput, PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.shards.shard_urls import ShardUrls, find_shards, open_one
from penstock.spark.streaming.shard_consumer import ShardConsumer
from penstock.spark.streaming.stream_offset import ShardOffset, StreamOffset
from penstock.spark.streaming.stream_options import StreamOptions
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import QueueEntry, find_queue
from penstock.storage.work import spark_workers
from penstock.upkeep import SharedUpkeep

__all__ = ["Consumer"]

log = logging.getLogger("penstock")
T = TypeVar("T")

# How long a shard that does not answer keeps the others waiting.
PATIENCE_SECONDS = 2.0
# How often it reads which shards the queue has partitions on.
REFRESH_SECONDS = 5.0


class Consumer:
    """Used by one thread."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._databases = self._open_shards()
        self._consumers: dict[int, ShardConsumer] = {}
        self._refreshed_at = -REFRESH_SECONDS
        # Which shard is asked first; the next claim begins with another.
        self._first = 0
        self._refresh()
        self._upkeep = SharedUpkeep(self._databases)
        self._upkeep.start()

    def url_of(self, shard: int) -> str:
        """Where a shard is."""
        return self._databases.of(shard).url

    def adopt(self, offset: StreamOffset) -> None:
        """Go on as the workers that hold this batch, those of them that still live."""
        for number, held in offset.by_shard:
            self._ask(number, held, lambda consumer, held: consumer.adopt(held))

    def claim_next(self, done: StreamOffset, most: int) -> StreamOffset:
        """Settle what the batches up to `done` covered, and claim; `done` itself where there is nothing new."""
        self._refresh()
        for number, _ in done.by_shard:
            self._consumer_of(number)
        # What one shard leaves of its share goes to those after it; so that none is always last, each claim begins with
        # another.
        numbers = sorted(self._consumers)
        self._first = (self._first + 1) % len(numbers)
        offsets: dict[int, ShardOffset] = {}
        is_new = False
        for passed, number in enumerate(numbers[self._first :] + numbers[: self._first]):
            before, share = done.of_shard(number), -(-most // (len(numbers) - passed))
            offset = self._ask(number, before, lambda consumer, offset: consumer.claim_next(offset, share))  # noqa: B023
            if offset is None or offset == before:
                offsets[number] = ShardOffset(before.worker)
            else:
                offsets[number] = offset
                is_new = True
                most -= offset.jobs
        return StreamOffset.of(offsets) if is_new else done

    def settle(self, done: StreamOffset) -> None:
        """Settle what a batch covered, once."""
        for number, offset in done.by_shard:
            self._ask(number, offset, lambda consumer, offset: consumer.settle(offset))

    def count_waiting(self) -> int:
        """How many jobs could be claimed now."""
        queue = self._entry.id
        answers = self._databases.each(lambda connection: spark_workers.waiting_in_queue(connection, queue))
        return sum(answers)

    def close(self) -> None:
        """End every thread and connection; what is held stays held, for the query may be started again."""
        self._upkeep.stop()
        for consumer in self._consumers.values():
            consumer.close()
        self._databases.close()

    def _refresh(self) -> None:
        now = system.monotonic()
        if now - self._refreshed_at < REFRESH_SECONDS:
            return
        self._refreshed_at = now
        self._entry: QueueEntry = self._databases.read(self._find_queue)
        for number in sorted(set(self._entry.partition_shards)):
            self._consumer_of(number)

    def _consumer_of(self, number: int) -> ShardConsumer:
        if number not in self._consumers:
            if number not in self._databases:
                self._databases.add(self._open_database(find_shards(self._options.url), number))
            self._consumers[number] = ShardConsumer(
                self._databases.of(number), self._entry, self._options.tasks, self._options.lease_seconds
            )
        return self._consumers[number]

    def _ask(self, number: int, offset: ShardOffset, act: Callable[[ShardConsumer, ShardOffset], T]) -> T | None:
        """Call a shard's consumer. A shard that is away: alone, that is raised; beside others it is None, and the batch
        is settled when it is back.
        """
        consumer = self._consumer_of(number)
        if len(self._consumers) > 1 and self._databases.of(number).breaker.is_down:
            consumer.settle_later(offset)
            return None
        try:
            return act(consumer, offset)
        except PartitionUnavailable as error:
            if len(self._consumers) == 1:
                raise
            consumer.settle_later(offset)
            log.warning("%s; the stream goes on with the other shards", error)
            return None

    def _open_shards(self) -> Databases:
        found = find_shards(self._options.url)
        return found.open_all(lambda number: self._open_database(found, number))

    def _open_database(self, found: ShardUrls, number: int) -> Database:
        return open_one(
            found.urls,
            number,
            pool_size=2,
            request_timeout=30.0 if found.urls.keys() == {number} else PATIENCE_SECONDS,
            lease_seconds=self._options.lease_seconds,
        )

    def _find_queue(self, connection: Connection) -> QueueEntry:
        entry = find_queue(connection, self._options.queue)
        if entry.is_owned:
            raise InvalidInput(
                "queue",
                f"{entry.name!r} has rules about keys, which a stream's batches cannot keep; use ps.process for it",
            )
        return entry
