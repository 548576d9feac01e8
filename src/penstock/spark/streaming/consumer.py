"""The consumer behind a stream of jobs: a claimer on each shard that has partitions of the queue.

A batch is what all of them claimed together. One whose shard is away claims nothing, and settles what it owes when that
is back; the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from penstock.clock import system
from penstock.errors import InvalidInput, PartitionUnavailable
from penstock.shards.databases import Shards
from penstock.spark.data_source.shard_urls import find_shards
from penstock.spark.streaming.shard_consumer import Claimer
from penstock.spark.streaming.stream_offset import ClaimOffset, StreamOffset
from penstock.storage import Connection, Database, slots
from penstock.storage.catalogue import QueueEntry, find_queue
from penstock.upkeep import SharedUpkeep

__all__ = ["Consumer", "Wanted"]

log = logging.getLogger("penstock")
T = TypeVar("T")

# How long a shard that does not answer keeps the others waiting.
PATIENCE_SECONDS = 2.0
# How often it is looked which shards the queue has come to.
LOOK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a stream asks for, by its options."""

    url: str
    queue: str
    tasks: tuple[str, ...] | None
    lease_seconds: float


class Consumer:
    """Used by one thread."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._shards = self._opened()
        self._claimers: dict[int, Claimer] = {}
        self._looked_at = -LOOK_SECONDS
        self._turn = 0
        self._look()
        self._upkeep = SharedUpkeep(self._shards)
        self._upkeep.start()

    def url_of(self, shard: int) -> str:
        """Where a shard is."""
        return self._shards.of(shard).url

    def adopt(self, offset: StreamOffset) -> None:
        """Be the workers that hold this, those of them that still live."""
        for number, part in offset.parts:
            self._ask(number, part, lambda claimer, part: claimer.adopt(part))

    def next(self, done: StreamOffset, most: int) -> StreamOffset:
        """Settle what the batches up to `done` covered, and claim; `done` itself where there is nothing new."""
        self._look()
        for number, _ in done.parts:
            self._claimer(number)
        # Each time another shard comes first; what one leaves of its share goes to those after it.
        numbers = sorted(self._claimers)
        self._turn = (self._turn + 1) % len(numbers)
        parts: dict[int, ClaimOffset] = {}
        is_new = False
        for place, number in enumerate(numbers[self._turn :] + numbers[: self._turn]):
            before, share = done.part(number), -(-most // (len(numbers) - place))
            part = self._ask(number, before, lambda claimer, part: claimer.next(part, share))  # noqa: B023
            if part is None or part == before:
                parts[number] = ClaimOffset(before.worker)
            else:
                parts[number] = part
                is_new = True
                most -= part.jobs
        return StreamOffset.of(parts) if is_new else done

    def settle(self, done: StreamOffset) -> None:
        """Settle what a batch covered, once."""
        for number, part in done.parts:
            self._ask(number, part, lambda claimer, part: claimer.settle(part))

    def waiting(self) -> int:
        """How many jobs could be claimed now."""
        queue = self._entry.id
        answers = self._shards.each(lambda connection: slots.waiting_in_queue(connection, queue))
        return sum(answers)

    def close(self) -> None:
        """End every thread and connection; what is held stays held, for the query may be started again."""
        self._upkeep.stop()
        for claimer in self._claimers.values():
            claimer.close()
        self._shards.close()

    def _look(self) -> None:
        now = system.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        self._entry: QueueEntry = self._shards.read(self._find)
        for number in sorted(set(self._entry.partition_shards)):
            self._claimer(number)

    def _claimer(self, number: int) -> Claimer:
        if number not in self._claimers:
            if number not in self._shards:
                self._shards.add(self._database(number, find_shards(self._wanted.url).urls[number], is_alone=False))
            self._claimers[number] = Claimer(
                self._shards.of(number), self._entry, self._wanted.tasks, self._wanted.lease_seconds
            )
        return self._claimers[number]

    def _ask(self, number: int, part: ClaimOffset, act: Callable[[Claimer, ClaimOffset], T]) -> T | None:
        """Do something on a shard; None where it is away, and the others go on. Alone, that is an error."""
        claimer = self._claimer(number)
        if len(self._claimers) > 1 and self._shards.of(number).breaker.is_down:
            claimer.owe(part)
            return None
        try:
            return act(claimer, part)
        except PartitionUnavailable as error:
            if len(self._claimers) == 1:
                raise
            claimer.owe(part)
            log.warning("%s; the stream goes on with the other shards", error)
            return None

    def _opened(self) -> Shards:
        found = find_shards(self._wanted.url)
        is_alone = len(found.urls) == 1
        shards = Shards([self._database(number, url, is_alone=is_alone) for number, url in found.urls.items()])
        shards.note_drained([number for number in found.urls if number < found.lead])
        return shards

    def _database(self, number: int, url: str, *, is_alone: bool) -> Database:
        seconds = 30.0 if is_alone else PATIENCE_SECONDS
        return Database(
            url,
            pool_size=2,
            request_timeout=seconds,
            lease_seconds=self._wanted.lease_seconds,
            shard=number,
            is_alone=is_alone,
        )

    def _find(self, connection: Connection) -> QueueEntry:
        entry = find_queue(connection, self._wanted.queue)
        if entry.is_owned:
            raise InvalidInput(
                "queue",
                f"{entry.name!r} has rules about keys, which a stream's batches cannot keep; use ps.process for it",
            )
        return entry
