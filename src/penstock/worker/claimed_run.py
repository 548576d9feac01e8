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

import msgspec

from penstock.worker.claimed_job import ClaimedJob

if TYPE_CHECKING:
    from penstock.worker.slot_pool import Slot

__all__ = ["ClaimedRun", "form_runs"]

# After these the next job of the key may start.
GOING_ON = frozenset({"succeeded", "expired", "cancelled", "discarded"})


class ClaimedRun(ClaimedJob, gc=True):
    """Id, task and lease are its first job's. Guarded by the pool's lock, but for what says otherwise."""

    members: list[ClaimedJob] = msgspec.field(default_factory=list)
    # Whether its key waits for a person when one of its jobs runs out of attempts.
    halts_on_dead: bool = False
    # The slot that has it.
    slot: Slot | None = None
    is_over: bool = False
    # Jobs that have ended and are not settled. Slots add to it, the conductor removes.
    unsettled: set[int] = msgspec.field(default_factory=set)
    size: int = 0
    _settled: ClassVar[threading.Condition] = threading.Condition()

    @classmethod
    def of(cls, members: list[ClaimedJob], *, halts_on_dead: bool) -> ClaimedRun:
        """A run of these."""
        first = members[0]
        facts = (first.lease, first.task, first.id, first.args, first.key, first.attributes)
        run = cls(*facts, halts_on_dead=halts_on_dead)
        run.add(members)
        return run

    @property
    def number(self) -> tuple[int, bytes]:
        """Tells it from all others: its partition and its key."""
        assert self.key is not None  # noqa: S101 - jobs without one are in no run
        return self.lease.partition_id, self.key

    def add(self, members: list[ClaimedJob]) -> None:
        """Let these follow."""
        for job in members:
            job.run = self
        if self.slot is None:
            self.members += members
            self.size = len(self.members)
        else:
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
        return self.slot.take_back()

    def goes_on(self, job: ClaimedJob) -> bool:
        """From the slot's thread: whether the next may start, after one has ended."""
        end = job.end
        return not job.is_split and (end in GOING_ON or (end == "failed" and not self.halts_on_dead))

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
    """The same, in which those of a key have become one, in its order."""
    by_key: dict[tuple[int, bytes], list[ClaimedJob]] = {}
    formed: list[ClaimedJob | list[ClaimedJob]] = []
    for job in jobs:
        key = job.key
        if key is None or not job.lease.may_have_runs or job.task.batch is not None:
            formed.append(job)
        elif (known := by_key.get((job.lease.partition_id, key))) is None:
            by_key[job.lease.partition_id, key] = members = [job]
            formed.append(members)
        else:
            known.append(job)
    return [each if isinstance(each, ClaimedJob) else _run_of(each, halts_on_dead(each[0])) for each in formed]


def _run_of(members: list[ClaimedJob], halts_on_dead: bool) -> ClaimedRun:
    members.sort(key=lambda each: (each.lease.pos, each.id))
    return ClaimedRun.of(members, halts_on_dead=halts_on_dead)
