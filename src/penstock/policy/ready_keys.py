"""Whose turn it is: the keys that could start a job, in the order in which they may.

Without fairness it is the key whose next job has the least rank. With it, first the tenant is chosen and then, among
its keys, the least rank: fair queueing by count. Each start moves its tenant on by one over its weight, and the tenant
that will be least far on by it is next, so that tenants with work start jobs in proportion to their weights whatever
they have queued. One that comes, or comes back, begins where the one is that started last: a share that was not used is
not saved up, and however many come, those that wait have their turn first.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace

from penstock.policy.key import Key, Turn

__all__ = ["FairTurns", "Turns"]

FEWEST_BEFORE_A_SWEEP = 64


class Turns:
    """Keys by the rank of their next job. A key that is no longer ready, or with another job, left its turn behind."""

    __slots__ = ("_heap", "_sweep_at_size")

    def __init__(self) -> None:
        self._heap: list[Turn] = []
        self._sweep_at_size = FEWEST_BEFORE_A_SWEEP

    def mark(self, tenant: str, jobs: int = 1) -> int:
        """The number that stands for the tenant of so many jobs more."""
        return 0

    def unmark(self, mark: int) -> None:
        """One job less of that tenant waits."""

    def enter(self, turn: Turn, mark: int) -> None:
        """Let a key wait for its turn."""
        heap = self._heap
        heappush(heap, turn)
        if len(heap) > self._sweep_at_size:
            heap[:] = [turn for turn in heap if turn[2].turn is turn]
            heapify(heap)
            self._sweep_at_size = 2 * len(heap) + FEWEST_BEFORE_A_SWEEP

    def first(self) -> float | None:
        """The rank of the next job of the key whose turn it is."""
        heap = self._heap
        while heap and heap[0][2].turn is not heap[0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def next(self) -> Key | None:
        """Take out the key whose turn it is."""
        heap = self._heap
        while heap:
            turn = heappop(heap)
            key = turn[2]
            if key.turn is turn:
                key.turn = None
                return key
        return None

    def started(self) -> None:
        """The key that came last has started a job."""


class _Tenant(Turns):
    __slots__ = ("is_entered", "jobs", "name", "number")

    def __init__(self, name: str, number: int) -> None:
        super().__init__()
        self.name = name
        self.number = number
        self.jobs = 0
        self.is_entered = False


class FairTurns(Turns):
    """Tenants by how far on their next start takes them; within a tenant, keys by rank."""

    __slots__ = ("_entries", "_free", "_numbered", "_progress", "_tenants", "_waiting", "weights")

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = weights
        self._tenants: dict[str, _Tenant] = {}
        self._numbered: list[_Tenant] = []
        self._free: list[int] = []
        # Of each that has entered: how far on its next start takes it, when it entered, its number.
        self._waiting: list[tuple[float, int, int]] = []
        self._entries = 0
        # How far on the tenant is that started last; no other is further.
        self._progress = 0.0
        self._sweep_at_size = FEWEST_BEFORE_A_SWEEP

    def mark(self, tenant: str, jobs: int = 1) -> int:
        known = self._tenants.get(tenant)
        if known is None:
            known = self._new(tenant)
        known.jobs += jobs
        return known.number

    def unmark(self, mark: int) -> None:
        self._numbered[mark].jobs -= 1

    def enter(self, turn: Turn, mark: int) -> None:
        tenant = self._numbered[mark]
        tenant.enter(turn, mark)
        if not tenant.is_entered:
            tenant.is_entered = True
            heappush(self._waiting, self._entry(tenant))

    def next(self) -> Key | None:
        waiting = self._waiting
        while waiting:
            tenant = self._numbered[waiting[0][2]]
            key = tenant.next()
            if key is not None:
                return key
            heappop(waiting)
            tenant.is_entered = False
        return None

    def started(self) -> None:
        self._progress, _, number = self._waiting[0]
        heapreplace(self._waiting, self._entry(self._numbered[number]))

    def _entry(self, tenant: _Tenant) -> tuple[float, int, int]:
        self._entries += 1
        return self._progress + 1 / self.weights.get(tenant.name, 1.0), self._entries, tenant.number

    def _new(self, name: str) -> _Tenant:
        if len(self._tenants) >= self._sweep_at_size:
            self._sweep()
        if self._free:
            number = self._free.pop()
            tenant = self._numbered[number] = _Tenant(name, number)
        else:
            tenant = _Tenant(name, len(self._numbered))
            self._numbered.append(tenant)
        self._tenants[name] = tenant
        return tenant

    def _sweep(self) -> None:
        for name, tenant in list(self._tenants.items()):
            if not tenant.jobs and not tenant.is_entered:
                del self._tenants[name]
                self._free.append(tenant.number)
        self._sweep_at_size = 2 * len(self._tenants) + FEWEST_BEFORE_A_SWEEP
