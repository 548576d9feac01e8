"""What the owner of a partition knows of one key: what waits, what is out, and why nothing more of it starts."""

from __future__ import annotations

from typing import Final, TypeAlias

from penstock.policy.job_sequence import AHEAD, BEHIND, ID, KNOWN, RANK, Lane

__all__ = ["AWAY", "BUSY", "DRAINING", "EMPTY", "READY", "STUCK", "Key", "Turn"]


# Why the next job of a key does not start: the first that applies. Plain numbers: a member of an Enum costs a tenth of
# a microsecond to look up, ten times for each job.
AWAY: Final = -1  # a job of it that an older map sent elsewhere is held or halted there
EMPTY: Final = 0
STUCK: Final = 1  # held, halted, or without a handler here: nothing the owner does will change it
BUSY: Final = 2  # as many as may be are out
DRAINING: Final = 3  # an older map may still have jobs of it elsewhere
READY: Final = 4  # it may: only the partition's limit and the rates are left to ask


class Key:
    """One key. The jobs of a tenant without a key share one of these, in which none waits for another to end."""

    __slots__ = (
        "elsewhere",
        "holds",
        "lane",
        "name",
        "others",
        "out",
        "standing",
        "startable",
        "tenant",
        "turn",
        "unstarted",
        "waiting",
    )

    def __init__(self, name: bytes | None, tenant: str = "") -> None:
        self.name = name
        # Of jobs without a key.
        self.tenant = tenant
        # The lane whose head is next, and those that wait beside it: most keys have none.
        self.lane: Lane | None = None
        self.others: list[Lane] | None = None
        self.waiting = 0
        self.out = 0
        self.elsewhere = 0
        # Of those elsewhere, how many may come back without having started.
        self.unstarted = 0
        self.holds = 0
        self.standing: int = EMPTY
        self.startable = 0
        # Its place among the keys that are ready. A turn that is not this very object is out of date.
        self.turn: Turn | None = None

    def add(self, epoch: int, priority: int, pos: int, job: int, rank: int, mark: int) -> int:
        """Put a job in its place."""
        lane = self.lane
        if lane is None:
            lane = self.lane = Lane(epoch, priority)
        elif lane.priority != priority or lane.epoch != epoch:
            return self._add_beside(epoch, priority, pos, job, rank, mark)
        placed = lane.add(pos, job, rank, mark)
        if placed:
            self.waiting += 1
            if placed == AHEAD and self.others:
                self._choose()
        return placed

    def lane_before(self, epoch: int, priority: int, pos: int, job: int) -> Lane | None:
        """The lane at whose end a job belongs; None where there is none, or its place is further ahead."""
        if self.lane is None:
            self.lane = Lane(epoch, priority)
        for lane in (self.lane, *(self.others or ())):
            if lane.priority == priority and lane.epoch == epoch:
                return lane if lane.ends_before(pos, job) else None
        return None

    def pop(self) -> int:
        """Take the next job out."""
        lane = self.lane
        assert lane is not None  # noqa: S101 - who calls this has looked
        job = lane.pop()
        self.waiting -= 1
        if self.others:
            self._choose()
        elif lane.at == len(lane.first):
            self.lane = None
        return job

    def _add_beside(self, epoch: int, priority: int, pos: int, job: int, rank: int, mark: int) -> int:
        self.others = self.others or []
        lane = next((lane for lane in self.others if lane.priority == priority and lane.epoch == epoch), None)
        if lane is None:
            lane = Lane(epoch, priority)
            self.others.append(lane)
        if not lane.add(pos, job, rank, mark):
            return KNOWN
        self.waiting += 1
        before = self.lane
        self._choose()
        return AHEAD if self.lane is not before else BEHIND

    def _choose(self) -> None:
        """The lane of the oldest map is next, since newer ones may wait for it; of those the one of least rank."""
        lanes = [lane for lane in (self.lane, *(self.others or ())) if lane is not None and not lane.is_empty]
        self.lane = min(
            lanes, key=lambda lane: (lane.epoch, lane.first[lane.at + RANK], lane.first[lane.at + ID]), default=None
        )
        self.others = [lane for lane in lanes if lane is not self.lane] or None


Turn: TypeAlias = tuple[float, int, Key]
"""When it is a key's turn: the rank of its next job, and its id to tell equals apart."""
