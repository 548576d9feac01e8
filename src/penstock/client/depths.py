"""Where the fewest jobs wait, over all shards, and which shards answer.

Each shard is asked for the depths of its partitions a few times a second, all of them in one read. On several shards a
thread asks, and nobody waits long for it: a shard that owes an answer is passed over as long as another one has given
its own. So a call without a key is sent only to a shard that answered a moment ago, as far as there is one, and one
that hangs is met by few calls.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress

from penstock.routing.placement import Placement
from penstock.storage import catalogue
from penstock.storage.catalogue import QueueEntry
from penstock.storage.database import ConnectionLost, Database
from penstock.storage.shards import Shards

__all__ = ["Depths"]

# How long depths count, and from when on they are read anew before that.
LIFETIME_SECONDS = 0.1
RENEWED_SECONDS = 0.05
# How long the first answer is waited for, and from then on the others.
FIRST_SECONDS = 1.0
OTHERS_SECONDS = 0.05


class Depths:
    """One per producer; used by any number of threads."""

    def __init__(self, shards: Shards, threads: ThreadPoolExecutor) -> None:
        self._shards = shards
        self._threads = threads
        self._placement = Placement()
        self._readings: dict[int, Reading] = {}
        self._lock = threading.Lock()

    def place(self, entry: QueueEntry, numbers: Sequence[int], jobs: int, avoid: Collection[int] = ()) -> int:
        """Of these partitions the one for so many jobs: the least loaded that is on a shard that answers.

        Shards to be avoided are passed over, unless there is no other.
        """
        if len(numbers) == 1:
            return numbers[0]
        ids, shards = entry.partition_ids, entry.partition_shards
        if len(self._shards) == 1:
            wanted = [ids[number] for number in numbers]
            self._reading(shards[numbers[0]]).refresh(wanted)
        else:
            of_all = [each for each in dict.fromkeys(shards[n] for n in numbers) if each in self._shards]
            of_these = (
                [each for each in of_all if each not in avoid and self.is_writable(each)]
                or [each for each in of_all if self.is_writable(each)]
                or of_all
                or [shards[numbers[0]]]
            )
            fresh = self._fresh({s: [ids[n] for n in numbers if shards[n] == s] for s in of_these}) or of_these
            wanted = [ids[number] for number in numbers if shards[number] in fresh]
        with self._lock:
            chosen = self._placement.place(wanted, jobs)
        return ids.index(chosen)

    def withdraw(self, partition: int, jobs: int) -> None:
        """Uncount jobs that were not written after all."""
        with self._lock:
            self._placement.withdraw(partition, jobs)

    def is_writable(self, shard: int) -> bool:
        """Whether a shard is there and takes jobs, as far as is known."""
        return shard in self._shards and self._shards.of(shard).breaker.is_writable

    def _fresh(self, partitions: dict[int, list[int]]) -> list[int]:
        """Those of the shards whose depths are known as of now; the others are asked, and waited for a little."""
        readings = {shard: self._reading(shard) for shard in partitions}
        asked: dict[Future[None], int] = {}
        for shard, reading in readings.items():
            if reading.is_old(partitions[shard], RENEWED_SECONDS):
                answer = reading.ask(partitions[shard], self._threads)
                if reading.is_old(partitions[shard], LIFETIME_SECONDS):
                    asked[answer] = shard
        owing = {answer for answer, shard in asked.items() if not readings[shard].is_overdue}
        if owing and len(asked) == len(readings):
            _, owing = wait(owing, FIRST_SECONDS, return_when=FIRST_COMPLETED)
        if owing:
            _, owing = wait(owing, OTHERS_SECONDS)
        for answer in owing:
            readings[asked[answer]].is_overdue = True
        return [shard for shard, each in readings.items() if not each.is_old(partitions[shard], LIFETIME_SECONDS)]

    def _reading(self, shard: int) -> Reading:
        reading = self._readings.get(shard)
        if reading is None or reading.database is not self._shards.of(shard):
            reading = self._readings[shard] = Reading(self._shards.of(shard), self._placement, self._lock)
        return reading


class Reading:
    """What was last read of one shard. At most one thread asks it at a time."""

    def __init__(self, database: Database, placement: Placement, lock: threading.Lock) -> None:
        self.database = database
        self._placement = placement
        self._lock = lock
        self._known: dict[int, None] = {}
        self._learned_at: float | None = None
        self._is_reading = threading.Lock()
        self._answer: Future[None] | None = None
        # Somebody has waited in vain for the answer that is under way: nobody else does.
        self.is_overdue = False

    def is_old(self, partitions: Sequence[int], seconds: float) -> bool:
        """Whether the depths of these were never read, or longer ago."""
        if self._learned_at is None or self.database.clock.monotonic() - self._learned_at >= seconds:
            return True
        return not all(partition in self._known for partition in partitions)

    def refresh(self, partitions: Sequence[int]) -> None:
        """Read here and now what is old, unless another thread does; what cannot be read stays as it was."""
        if self.is_old(partitions, LIFETIME_SECONDS) and self._is_reading.acquire(blocking=False):
            try:
                with suppress(*ConnectionLost):
                    self._read(partitions)
            finally:
                self._is_reading.release()

    def ask(self, partitions: Sequence[int], threads: ThreadPoolExecutor) -> Future[None]:
        """Read in another thread; one that does already is enough."""
        with self._is_reading:
            if self._answer is None or self._answer.done():
                self.is_overdue = False
                self._answer = threads.submit(self._read, partitions)
            return self._answer

    def _read(self, partitions: Sequence[int]) -> None:
        wanted = {**self._known, **dict.fromkeys(partitions)}
        with self.database.connection(FIRST_SECONDS) as connection:
            depths = catalogue.open_depths(connection, tuple(wanted))
        with self._lock:
            self._placement.learn(dict(zip(wanted, depths, strict=True)))
        self._known, self._learned_at = wanted, self.database.clock.monotonic()
