"""What the owner of a partition knows of one key: what waits, what is out, and what it waits for."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from penstock.policy.lane import ID, RANK, Lane

__all__ = ["Key", "Standing", "Turn"]


class Standing(IntEnum):
    """Why the next job of a key does not start; the first that applies."""

    EMPTY = 0
    STUCK = 1  # held, halted, or without a handler here: nothing the owner does will change it
    BUSY = 2  # as many as may are out
    DRAINING = 3  # an older map still has jobs of it elsewhere
    READY = 4  # it may: only the partition's limit and the rates are left to ask


class Key:
    """One key. The jobs without a key share one of these, in which nothing waits for anything else."""

    __slots__ = ("elsewhere", "holds", "lanes", "name", "out", "standing", "startable", "turn", "waiting")

    def __init__(self, name: bytes | None) -> None:
        self.name = name
        self.lanes: list[Lane] = []
        self.waiting = 0
        self.out = 0
        self.elsewhere = 0
        self.holds = 0
        self.standing = Standing.EMPTY
        self.startable = 0
        # Its place among the keys that are ready. One that is not this very object is out of date.
        self.turn: Turn | None = None

    @property
    def is_forgettable(self) -> bool:
        return not (self.waiting or self.out or self.elsewhere or self.holds)

    def add(self, epoch: int, priority: int, pos: int, job: int, rank: int, mark: int) -> bool:
        """Put a job in its place; False where it was there already."""
        for lane in self.lanes:
            if lane.priority == priority and lane.epoch == epoch:
                break
        else:
            lane = Lane(epoch, priority)
            self.lanes.append(lane)
        if lane.add(pos, job, rank, mark):
            self.waiting += 1
            return True
        return False

    def head(self) -> Lane:
        """The lane whose head is next: of the oldest map, since newer ones may wait for it; then of the least rank."""
        lanes = self.lanes
        if len(lanes) == 1:
            return lanes[0]
        return min(lanes, key=lambda lane: (lane.epoch, lane.first[lane.at + RANK], lane.first[lane.at + ID]))

    def pop(self, lane: Lane) -> int:
        """Take the head of a lane out."""
        job = lane.pop()
        if lane.is_empty:
            self.lanes.remove(lane)
        self.waiting -= 1
        return job


Turn: TypeAlias = tuple[float, int, Key]
"""When it is a key's turn: the rank and the id of its next job."""
