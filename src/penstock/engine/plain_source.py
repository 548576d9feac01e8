"""The source of plain and gated queues: claims, from the queues in turn, whatever is at their partitions' heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from math import inf

import msgspec

from penstock.engine.source import NO_BATCH_SIZES, NOTHING, BatchSizes, Wish
from penstock.policy.claim_order import ClaimOrder
from penstock.storage.connection.database import Connection
from penstock.storage.work import workers
from penstock.storage.work.exchange import FROM_THE_START, ClaimWish, Turn
from penstock.storage.work.leases import Lease, LeasedJob
from penstock.storage.work.owner import read_partitions

__all__ = ["PlainSource"]

# So often the source asks whether there are other partitions, and lets claims begin at the head again.
SWEEP_SECONDS = 1.0
# In a partition that gave so many leases since then, a claim begins where the last one ended, so that dead rows at
# the head are not walked again; a row that appeared before that waits.
MANY_LEASES = 32


class PlainSource:
    """For one holder, which claims for itself. `partitions`: those that are known, with their queues; `batch_sizes`:
    those tasks of which several jobs are started together.
    """

    def __init__(
        self,
        worker: int,
        queues: Iterable[int],
        partitions: Mapping[int, int] | None = None,
        batch_sizes: BatchSizes = NO_BATCH_SIZES,
    ) -> None:
        self._worker = worker
        # The queues with such tasks; and the same as a claim takes it.
        self._with_batches = batch_sizes.keys()
        self._batches = msgspec.json.encode(batch_sizes).decode() if batch_sizes else None
        self._queues = list(queues)
        self._queue_of: dict[int, int] = dict(partitions or {})
        self._order = ClaimOrder()
        # Since the last sweep: how many leases each partition gave, and of those that gave many, by priority, the `pos`
        # at which the next claim begins.
        self._given: Counter[int] = Counter()
        self._starts: dict[int, list[int]] = {}
        self._left: Mapping[int, int] = {}
        self._withheld: Set[int] = frozenset()
        # The lease of a job that was rescued twice, while it runs here: it may be the one that kills workers.
        self._suspect: Lease | None = None
        # As of which version of the catalogue the partitions were read.
        self._version = -1
        self._read_at = -inf
        self._swept_at = -inf

    def is_look_due(self, now: float) -> bool:
        return bool(self._queues) and now - self._read_at > SWEEP_SECONDS

    def look(self, connection: Connection, wanted: int, now: float) -> None:
        if self.is_look_due(now):
            self._read_at = now
            self._version, partitions = read_partitions(connection, self._queues, self._version)
            if partitions:
                self._queue_of.update((each.id, each.queue) for each in partitions)
                self._order.set_partitions(partitions)

    def wish(self, slots: int, ahead: int, waiting: int, now: float) -> Wish:
        if now - self._swept_at > SWEEP_SECONDS:
            self._swept_at = now
            self._given.clear()
            self._starts.clear()
        full = {queue for queue, left in self._left.items() if left <= 0} if self._left else None
        spans = self._order.next(self._withheld | full if full else self._withheld)
        if not spans:
            return NOTHING
        if self._suspect is not None and self._suspect.unsettled <= 0:
            self._suspect = None
        firsts, lasts = zip(*spans, strict=True)
        has_suspect = self._suspect is not None
        return Wish(ClaimWish(firsts, lasts, slots, ahead, has_suspect, self._left, self._batches, self._starts))

    def expect(self, job_seconds: float | None) -> None:
        pass  # It has no runs.

    @property
    def has_runs(self) -> bool:
        return False

    def close_runs(self, keys: Iterable[tuple[int, bytes]]) -> None:
        pass

    @property
    def has_startable(self) -> bool:
        return True  # Only a claim would tell.

    def learn(self, wish: Wish, turn: Turn, now: float) -> list[Lease]:
        if wish.claim is not None:
            self._order.learn(lease.partition_id for lease in turn.leases)
        for lease in turn.leases:
            partition = lease.partition_id
            queue = self._queue_of.get(partition)
            if queue is None:
                continue  # Found after a lost answer: an owner chose it.
            self._given[partition] += 1
            # What a batch passed over waits before it.
            if self._given[partition] >= MANY_LEASES and queue not in self._with_batches:
                starts = self._starts.setdefault(partition, list(FROM_THE_START))
                starts[lease.priority] = max(starts[lease.priority], lease.pos)
        for lease in (*turn.leases, *turn.chosen):
            if lease.rescues > 1:
                self._suspect = lease
        return turn.leases

    def read_ahead(self, leases: Iterable[Lease]) -> dict[int, LeasedJob]:
        return {lease.only_job[0]: lease.only_job for lease in leases if lease.only_job is not None}

    def has_unread(self, leases: Iterable[Lease]) -> bool:
        return False

    def read_on(self, connection: Connection, leases: Iterable[Lease]) -> None:
        pass

    def queue_of(self, partition: int) -> int:
        return self._queue_of[partition]

    def note_ends(self, ends: Iterable[tuple[int, int, str]], now: float) -> None:
        pass

    def note_succeeded(self, partition: int, jobs: Sequence[int], now: float) -> None:
        pass

    def withhold(self, paused: Set[int], blocked: Set[int]) -> None:
        self._withheld = paused | blocked if blocked else paused

    def cap(self, left: Mapping[int, int]) -> None:
        self._left = left

    @property
    def surplus(self) -> list[int]:
        return []

    def give_up(self, connection: Connection, partitions: Sequence[int]) -> None:
        pass

    @property
    def must_leave(self) -> bool:
        return False

    def leave(self, connection: Connection) -> None:
        pass

    def has_work(self, connection: Connection, now: float) -> bool:
        self.look_again()
        return workers.has_work(connection, self._worker)

    def note_idle(self, connection: Connection, now: float) -> None:
        self.look_again()

    def patience(self, now: float) -> float:
        return inf

    def look_again(self) -> None:
        self._swept_at = -inf

    def note_news(self) -> None:
        pass  # Each claim looks.

    def forget(self) -> None:
        self.look_again()
        # On another server the same version may stand for others.
        self._version = -1
