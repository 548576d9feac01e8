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
from math import inf
from typing import NamedTuple

from penstock.clock import system
from penstock.deadline import within
from penstock.routing.placement import Placement
from penstock.shards.databases import Databases
from penstock.storage.catalogue import queues as catalogue
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import ConnectionLost
from penstock.storage.upkeep.sweep import fold_if_long

__all__ = ["Depths"]

# How long depths count, and from when on they are read anew before that.
LIFETIME_SECONDS = 0.1
RENEWED_SECONDS = 0.05
# How long the first answer is waited for, and from then on the others.
FIRST_SECONDS = 1.0
OTHERS_SECONDS = 0.05
# How often it is looked whether what is read has grown long.
FOLD_SECONDS = 1.0


class Depths:
    """One per producer; used by any number of threads."""

    def __init__(self, databases: Databases, threads: ThreadPoolExecutor) -> None:
        self._databases = databases
        self._threads = threads
        self._placement = Placement()
        self._readings: dict[int, Reading] = {}
        # Where the partitions of each queue are, as of an entry.
        self._layouts: dict[int, tuple[QueueEntry, list[Group]]] = {}
        self._lock = threading.Lock()

    def place(
        self,
        entry: QueueEntry,
        numbers: Sequence[int],
        jobs: int,
        avoid: Collection[int] = (),
        *,
        is_ready: bool = True,
    ) -> int:
        """Of these partitions the one for so many jobs: the least loaded that is on a shard that answers.

        Shards to be avoided are passed over, unless there is no other.
        """
        if len(numbers) == 1:
            return numbers[0]
        groups = self._groups(entry, numbers)
        if self._databases.sole is not None:
            groups[0].reading.refresh(groups[0].partitions)
        else:
            good = [group for group in groups if group.reading.database.breaker.is_writable]
            groups = self._fresh([group for group in good if group.shard not in avoid] or good or groups)
        partitions = groups[0].partitions
        if len(groups) > 1:
            partitions = [partition for group in groups for partition in group.partitions]
        with self._lock:
            chosen = self._placement.place(partitions, jobs, is_ready=is_ready)
        return entry.partition_ids.index(chosen)

    def withdraw(self, partition: int, jobs: int, *, is_ready: bool) -> None:
        """Uncount jobs that were not written after all."""
        with self._lock:
            self._placement.withdraw(partition, jobs, is_ready=is_ready)

    def fold(self, shard: int, connection: Connection) -> None:
        """Before a length is read there: keep what has to be read for it short."""
        self._reading(shard).fold(connection)

    def is_writable(self, shard: int) -> bool:
        """Whether a shard is there and takes jobs, as far as is known."""
        return shard in self._databases and self._databases.of(shard).breaker.is_writable

    def _groups(self, entry: QueueEntry, numbers: Sequence[int]) -> list[Group]:
        """The partitions by shard; those of shards that the app has not got are left out, unless all are."""
        is_all = len(numbers) == entry.partition_count
        known = self._layouts.get(entry.id) if is_all else None
        if known is not None and known[0] is entry:
            return known[1]
        by_shard: dict[int, list[int]] = {}
        for number in numbers:
            by_shard.setdefault(entry.partition_shards[number], []).append(entry.partition_ids[number])
        shards = [shard for shard in by_shard if shard in self._databases] or list(by_shard)
        groups = [Group(shard, by_shard[shard], self._reading(shard)) for shard in shards]
        if is_all:
            self._layouts[entry.id] = entry, groups
        return groups

    def _fresh(self, groups: list[Group]) -> list[Group]:
        """Those whose depths are known as of now, or all; the others' shards are asked, and waited for a little."""
        now = system.monotonic()
        asked: dict[Future[None], Reading] = {}
        for _, partitions, reading in groups:
            if reading.is_old(partitions, RENEWED_SECONDS, now):
                answer = reading.ask(partitions, self._threads)
                if reading.is_old(partitions, LIFETIME_SECONDS, now):
                    asked[answer] = reading
        if not asked:
            return groups
        owing = {answer for answer, reading in asked.items() if not reading.is_overdue}
        if owing and len(asked) == len(groups):
            _, owing = wait(owing, FIRST_SECONDS, return_when=FIRST_COMPLETED)
        if owing:
            _, owing = wait(owing, OTHERS_SECONDS)
        for answer in owing:
            asked[answer].is_overdue = True
        now = system.monotonic()
        return [each for each in groups if not each.reading.is_old(each.partitions, LIFETIME_SECONDS, now)] or groups

    def _reading(self, shard: int) -> Reading:
        reading = self._readings.get(shard)
        if reading is None:
            reading = self._readings[shard] = Reading(self._databases.of(shard), self._placement, self._lock)
        return reading


class Group(NamedTuple):
    """Partitions on one shard."""

    shard: int
    partitions: list[int]
    reading: Reading


class Reading:
    """What was last read of one shard. At most one thread asks it at a time."""

    def __init__(self, database: Database, placement: Placement, lock: threading.Lock) -> None:
        self.database = database
        self._placement = placement
        self._lock = lock
        self._known: dict[int, None] = {}
        self._learned_at: float | None = None
        self._folded_at = -inf
        self._is_reading = threading.Lock()
        self._answer: Future[None] | None = None
        # Somebody has waited in vain for the answer that is under way: nobody else does.
        self.is_overdue = False

    def is_old(self, partitions: Sequence[int], seconds: float, now: float) -> bool:
        """Whether the depths of these were never read, or longer ago. They are read together, so the last tells."""
        return self._learned_at is None or now - self._learned_at >= seconds or partitions[-1] not in self._known

    def refresh(self, partitions: Sequence[int]) -> None:
        """Read here and now what is old, unless another thread does; what cannot be read stays as it was."""
        if self.is_old(partitions, LIFETIME_SECONDS, system.monotonic()) and self._is_reading.acquire(blocking=False):
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

    def fold(self, connection: Connection) -> None:
        """Now and then: add up what was counted, in case no worker lives to do it."""
        now = system.monotonic()
        if now - self._folded_at > FOLD_SECONDS:
            self._folded_at = now
            fold_if_long(connection)

    def _read(self, partitions: Sequence[int]) -> None:
        wanted = {**self._known, **dict.fromkeys(partitions)}
        with within(FIRST_SECONDS), self.database.connection() as connection:
            self.fold(connection)
            depths = catalogue.read_depths(connection, tuple(wanted))
        with self._lock:
            self._placement.learn(dict(zip(wanted, depths, strict=True)))
        self._known, self._learned_at = wanted, system.monotonic()
