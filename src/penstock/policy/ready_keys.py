"""Ready keys: those that could start a job, in the order in which they do.

Without fairness it is the key whose next job has the least rank. With it, first the tenant is chosen and then, among
its keys, the least rank: fair queueing by count. Each start moves its tenant on by one over its weight, and the tenant
that will be least far on by it is next, so that tenants with work start jobs in proportion to their weights whatever
they have queued. One that comes, or comes back, begins where the one is that started last: a share that was not used is
not saved up, and however many come, those that wait have their turn first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace

from penstock.policy.key import Key, ReadyEntry

__all__ = ["FairReadyKeys", "ReadyKeys"]

FEWEST_BEFORE_A_SWEEP = 64


class ReadyKeys:
    """Keys by the rank of their next job. Entries of keys that are not ready any more, or have another next job, stay
    until they are met.

    Most enter in the order of their ranks, as jobs were enqueued: those stand in a line, and cost the same however many
    there are. The others are in a heap.
    """

    __slots__ = ("_heap", "_line", "_sweep_at_size")

    def __init__(self) -> None:
        self._line: deque[ReadyEntry] = deque()
        self._heap: list[ReadyEntry] = []
        self._sweep_at_size = FEWEST_BEFORE_A_SWEEP

    def add_jobs(self, tenant: str, jobs: int = 1) -> int:
        """Count so many jobs more of a tenant; the number that stands for it."""
        return 0

    def remove_job(self, number: int) -> None:
        """Count one job less of that tenant."""

    def enter(self, entry: ReadyEntry, number: int) -> None:
        """Add a key, whose next job is of the tenant with this number."""
        line = self._line
        if not line or line[-1] <= entry:
            line.append(entry)
        else:
            heappush(self._heap, entry)
        if len(line) + len(self._heap) > self._sweep_at_size:
            self._line = deque(entry for entry in line if entry[2].entry is entry)
            self._heap = [entry for entry in self._heap if entry[2].entry is entry]
            heapify(self._heap)
            self._sweep_at_size = 2 * (len(self._line) + len(self._heap)) + FEWEST_BEFORE_A_SWEEP

    def first(self) -> float | None:
        """The rank of the next job of the first key."""
        line, heap = self._line, self._heap
        while line and line[0][2].entry is not line[0]:
            line.popleft()
        while heap and heap[0][2].entry is not heap[0]:
            heappop(heap)
        if line and heap:
            return min(line[0], heap[0])[0]
        return line[0][0] if line else heap[0][0] if heap else None

    def next(self) -> Key | None:
        """Take out the first key."""
        line, heap = self._line, self._heap
        while line or heap:
            entry = line.popleft() if line and not (heap and heap[0] < line[0]) else heappop(heap)
            key = entry[2]
            if key.entry is entry:
                key.entry = None
                return key
        return None

    def note_start(self, jobs: int = 1) -> None:
        """Note that the key taken out last has started so many jobs."""


class _Tenant(ReadyKeys):
    __slots__ = ("is_entered", "jobs", "name", "number")

    def __init__(self, name: str, number: int) -> None:
        super().__init__()
        self.name = name
        self.number = number
        self.jobs = 0
        self.is_entered = False


class FairReadyKeys(ReadyKeys):
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

    def add_jobs(self, tenant: str, jobs: int = 1) -> int:
        known = self._tenants.get(tenant)
        if known is None:
            known = self._new(tenant)
        known.jobs += jobs
        return known.number

    def remove_job(self, number: int) -> None:
        self._numbered[number].jobs -= 1

    def enter(self, entry: ReadyEntry, number: int) -> None:
        tenant = self._numbered[number]
        tenant.enter(entry, number)
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

    def note_start(self, jobs: int = 1) -> None:
        self._progress, _, number = self._waiting[0]
        heapreplace(self._waiting, self._entry(self._numbered[number], jobs))

    def _entry(self, tenant: _Tenant, jobs: int = 1) -> tuple[float, int, int]:
        self._entries += 1
        return self._progress + jobs / self.weights.get(tenant.name, 1.0), self._entries, tenant.number

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
