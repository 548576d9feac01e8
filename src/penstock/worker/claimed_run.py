"""A run: jobs of one key that were leased together and start one after the other, in one slot.

In a backlog it stands for those that have not been given to a slot. A slot that takes it has all of them in its bunch,
and more may follow there while it runs. The next starts when the one before has ended well, or for good. Otherwise the
run is over: what has not started goes back to where it stood, unattempted, and the conductor settles that with the end
it follows from. Whoever settles in its handler's own transaction waits for the ends before it, and ends the run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from penstock.worker.claimed_job import ClaimedJob

if TYPE_CHECKING:
    from penstock.worker.slot_pool import Slot

__all__ = ["ClaimedRun", "form_runs"]

# After these the next job of the key may start.
GOING_ON = frozenset({"succeeded", "expired", "cancelled", "discarded"})


class ClaimedRun(ClaimedJob):
    """Id, task and lease are its first job's. Guarded by the pool's lock, but for what says otherwise."""

    members: list[ClaimedJob]
    _settled: ClassVar[threading.Condition] = threading.Condition()

    def __init__(self, members: list[ClaimedJob], *, halts_on_dead: bool) -> None:
        first = members[0]
        super().__init__(first.lease, first.task, first._stored)
        self.members = []
        self._halts_on_dead = halts_on_dead
        # The slot that has it.
        self.slot: Slot | None = None
        self.is_over = False
        # The job whose end it is over by, where that is not settled yet: until it is, more of the run may be leased.
        self.ended_by: int | None = None
        # Jobs that have ended and are not settled. Slots add to it, the conductor removes.
        self.unsettled: set[int] = set()
        self.size = 0
        self.add(members)

    @property
    def number(self) -> tuple[int, int | None]:
        """Tells it from all others."""
        return self.lease.partition_id, self.lease.batch

    def add(self, members: list[ClaimedJob]) -> None:
        """Let these follow."""
        for job in members:
            job.run = self
        if self.slot is None:
            self.members += members
            self.size = len(self.members)
        else:
            with self.slot.lock:
                self.slot.bunch.extend(members)
                self.size = len(self.slot.bunch)

    @property
    def unstarted(self) -> list[ClaimedJob]:
        """What has not started."""
        return list(self.members if self.slot is None else self.slot.bunch)

    def take_unstarted(self) -> list[ClaimedJob]:
        """What has not started, which is then no longer in it; nothing more of it starts."""
        self.is_over = True
        if self.slot is None:
            members, self.members = self.members, []
            return members
        with self.slot.lock:
            members = list(self.slot.bunch)
            self.slot.bunch.clear()
            return members

    def goes_on(self, job: ClaimedJob) -> bool:
        """From the slot's thread: whether the next may start, after one has ended."""
        end = job.end
        return not job.is_split and (end in GOING_ON or (end == "failed" and not self._halts_on_dead))

    @property
    def is_half_empty(self) -> bool:
        """From the slot's thread: whether more should follow by now."""
        slot = self.slot
        return slot is None or 2 * len(slot.bunch) <= self.size

    def note_settled(self, job: int) -> None:
        """From the conductor's thread: the end of a job is written."""
        with self._settled:
            self.unsettled.discard(job)
            self._settled.notify_all()

    def wait_until_settled(self, seconds: float) -> bool:
        """From any thread: wait until every job that has ended is settled; False where that takes longer."""
        with self._settled:
            return self._settled.wait_for(lambda: not self.unsettled, seconds)


def form_runs(jobs: Sequence[ClaimedJob], halts_on_dead: Callable[[ClaimedJob], bool]) -> list[ClaimedJob]:
    """The same, in which those that were leased as one run have become one, in the order of their key."""
    members: dict[tuple[int, int], list[ClaimedJob]] = {}
    for job in jobs:
        if job.lease.batch is not None and job.task.batch is None:
            members.setdefault((job.lease.partition_id, job.lease.batch), []).append(job)
    formed: list[ClaimedJob] = []
    for job in jobs:
        lease = job.lease
        if lease.batch is None or job.task.batch is not None:
            formed.append(job)
        elif (found := members.pop((lease.partition_id, lease.batch), None)) is not None:
            found.sort(key=lambda each: (each.lease.pos, each.id))
            formed.append(ClaimedRun(found, halts_on_dead=halts_on_dead(job)))
    return formed
