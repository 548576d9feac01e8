"""The source of queues with rules about keys: an owner chooses from the partitions that are its own.

The owner is a row of `worker`, and whoever is given the leases may be another: one owner chooses for many holders. It
finds out by itself what became of jobs whose ends were written by somebody else, or that were rescued from a holder
that died. What became of a turn in doubt its user finds out, before anything else is chosen (`penstock.engine`, 4).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence, Set

from penstock.engine.owner import Owner
from penstock.engine.source import NO_BATCH_SIZES, NO_EXECUTORS, BatchSizes, Executors, Wish
from penstock.policy.claim_size import most_in_run
from penstock.storage.connection.database import Connection
from penstock.storage.work import workers
from penstock.storage.work.exchange import Turn
from penstock.storage.work.leases import Lease, LeasedJob
from penstock.storage.work.owner import has_work_of_others

__all__ = ["OwnedSource"]


class OwnedSource:
    """`queues`: the tasks that may be chosen, by queue; `partitions`: those that are known, with their queues;
    `batch_sizes`: those tasks of which several jobs are started together; `executors`: what runs the others, for who
    starts the jobs of a run one after the other; without it there are no runs.
    """

    def __init__(
        self,
        worker: int,
        queues: Mapping[int, Container[str]],
        partitions: Mapping[int, int] | None = None,
        batch_sizes: BatchSizes = NO_BATCH_SIZES,
        executors: Executors = NO_EXECUTORS,
    ) -> None:
        self._worker = worker
        self._owner = Owner(queues, batch_sizes, executors)
        self._queue_of = dict(partitions or {})

    def is_look_due(self, now: float) -> bool:
        return True

    def look(self, connection: Connection, wanted: int, now: float) -> None:
        if self._owner.share(connection, self._worker, now):
            for ownership in self._owner.ownerships:
                # A resize may have added it.
                self._queue_of[ownership.partition_id] = ownership.queue_id
        if wanted > 0:
            self._owner.look(connection, wanted, now)
        else:
            self._owner.stop_reading()

    def expect(self, job_seconds: float | None) -> None:
        self._owner.most_in_run = most_in_run(job_seconds)

    @property
    def has_runs(self) -> bool:
        return self._owner.has_runs

    def close_runs(self, keys: Iterable[tuple[int, bytes]]) -> None:
        self._owner.close_runs(keys)

    @property
    def has_startable(self) -> bool:
        return self._owner.has_startable

    def wish(self, slots: int, ahead: int, waiting: int, now: float) -> Wish:
        return Wish(None, self._owner.choose(slots, ahead, waiting, now))

    def learn(self, wish: Wish, turn: Turn, now: float) -> list[Lease]:
        if wish.choices:
            self._owner.note_leased(wish.choices, turn, now)
        leases = turn.leases + turn.chosen
        for lease in leases:
            if not lease.task:
                lease.starts_in_order = self._owner.starts_in_order(lease.partition_id)
                lease.may_have_runs = self._owner.may_have_runs(self._queue_of.get(lease.partition_id, 0))
        return leases

    def read_ahead(self, leases: Iterable[Lease]) -> dict[int, LeasedJob]:
        return self._owner.take_read_ahead(leases)

    def has_unread(self, leases: Iterable[Lease]) -> bool:
        return self._owner.has_unread(leases)

    def read_on(self, connection: Connection, leases: Iterable[Lease]) -> None:
        self._owner.read_on(connection, leases)

    def queue_of(self, partition: int) -> int:
        return self._queue_of[partition]

    def note_ends(self, ends: Iterable[tuple[int, int, str]], now: float) -> None:
        for partition, job, end in ends:
            self._owner.note_end(partition, job, end, now)

    def note_succeeded(self, partition: int, jobs: Sequence[int], now: float) -> None:
        self._owner.note_succeeded(partition, jobs, now)

    def withhold(self, paused: Set[int], blocked: Set[int]) -> None:
        # What is paused it reads with the rules.
        self._owner.withheld = blocked

    def cap(self, left: Mapping[int, int]) -> None:
        self._owner.left = left

    @property
    def surplus(self) -> list[int]:
        return self._owner.surplus

    def give_up(self, connection: Connection, partitions: Sequence[int]) -> None:
        self._owner.give_up(connection, self._worker, partitions)

    def owns_of(self, queue: int) -> bool:
        """Whether some partition of a queue is its owner's."""
        return any(each.queue_id == queue for each in self._owner.ownerships)

    def owns(self, partition: int) -> bool:
        """Whether a partition is its owner's."""
        return any(each.partition_id == partition for each in self._owner.ownerships)

    def max_wait(self, partition: int) -> float | None:
        """For how many seconds jobs of a partition may wait before they start."""
        return self._owner.max_wait(partition)

    def leave_queues(self, connection: Connection, queues: Container[int]) -> None:
        """Let others have the partitions of these queues, and have a share of them no more."""
        self._owner.leave_queues(connection, self._worker, queues)

    @property
    def must_leave(self) -> bool:
        return not self._owner.has_left

    def leave(self, connection: Connection) -> None:
        self._owner.leave(connection, self._worker)

    def has_work(self, connection: Connection, now: float) -> bool:
        self._owner.look_again()
        self.look(connection, 1, now)
        if not self._owner.is_idle(now):
            return True
        self._owner.note_idle(connection, self._worker, now)
        return has_work_of_others(connection, self._worker) or workers.has_work(connection, self._worker)

    def note_idle(self, connection: Connection, now: float) -> None:
        self._owner.note_idle(connection, self._worker, now)
        self._owner.look_again()

    def patience(self, now: float) -> float:
        return self._owner.patience(now)

    def look_again(self) -> None:
        self._owner.look_again()

    def note_news(self) -> None:
        self._owner.note_news()

    def forget(self) -> None:
        self._owner.forget()
