"""The leases that a worker holds on one database, as far as it knows; each counts its jobs that have not ended."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, ValuesView

from penstock.storage.work.leases import Lease
from penstock.worker.backlog import Backlog

__all__ = ["WorkerLeases"]

log = logging.getLogger("penstock")


class WorkerLeases:
    """Used by the conductor; whether there are any is asked from other threads too."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._leases: dict[int, Lease] = {}
        # How many others took over.
        self.lost = 0

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def known(self) -> ValuesView[Lease]:
        """All of them."""
        return self._leases.values()

    def add(self, lease: Lease, jobs: int, now: float) -> None:
        """Take in a new lease of so many jobs."""
        lease.unsettled, lease.taken_at = jobs, now
        if lease.id in self._leases:
            self._abandon(self._leases[lease.id])
        self._leases[lease.id] = lease

    def remove(self, lease: Lease) -> bool:
        """Remove a lease whose jobs have all ended; whether the server may still take some of them for running."""
        if self._leases.get(lease.id) is lease:
            del self._leases[lease.id]
        return lease.is_in_doubt

    def count(self, queue_of: Callable[[int], int]) -> Counter[int]:
        """How many jobs that have not ended they hold, by queue; a batch counts as one, and so does a run."""
        held: Counter[int] = Counter()
        batches: set[tuple[int, int]] = set()
        for lease in self._leases.values():
            if lease.batch is None:
                held[queue_of(lease.partition_id)] += lease.unsettled
            else:
                batches.add((lease.partition_id, lease.batch))
        for partition, _ in batches:
            held[queue_of(partition)] += 1
        for partition, beside in self._backlog.beside_in_runs():
            held[queue_of(partition)] -= beside
        return held

    def doubt(self) -> None:
        """Another server answers than the one that gave these. It may take jobs for running that have ended: what it
        has of each lease is looked up when that ends.
        """
        for lease in self._leases.values():
            lease.is_in_doubt = True

    def find_started(self, taken_before: float) -> list[Lease]:
        """Those claimed ahead, before that time, of which every job has started."""
        waiting = self._backlog.waiting_leases()
        return [
            lease
            for lease in self._leases.values()
            if lease.is_ahead and lease.id not in waiting and lease.taken_at < taken_before
        ]

    def abandon_all(self) -> None:
        """Abandon all of them: the worker was declared dead, and others have them."""
        self._backlog.withdraw()
        self._backlog.forget_runs()
        for job in (*self._backlog.active(), *self._backlog.split_leases.open):
            job.is_abandoned = True
        self.lost += len(self._leases)
        if self._leases:
            log.warning("LeaseLost: this worker was silent for too long; %d leases went to others", len(self._leases))
        self._leases.clear()

    def _abandon(self, lease: Lease) -> None:
        """The number of a lease was given again, so it is gone: none of its jobs is this worker's any more."""
        jobs = self._backlog.withdraw(lambda job: job.lease is lease)
        # In this order, in which jobs go on: none is passed over.
        jobs += [job for job in self._backlog.active() if job.lease is lease]
        jobs += [job for job in (*self._backlog.split_leases.open, *self._backlog.done) if job.lease is lease]
        for job in jobs:
            job.is_abandoned = True
        self.lost += 1
        log.warning(
            "LeaseLost: the server is another, or an older copy, and has given lease %d again; %d jobs that ran under "
            "it are no longer this worker's",
            lease.id,
            len(jobs),
        )
