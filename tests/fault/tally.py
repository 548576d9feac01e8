"""What a round did: how often it brought each fault about, and what it came to by that.

A round is a test of this folder. It says `brought("worker killed")` when it has done so, and the judge's "sometimes"
are added up beside it. The suite only looks at the test; the long run reads what a round did and goes on until every
fault has been brought about as often as stands here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["FAULTS", "SOMETIMES", "Tally", "brought", "came_to", "tally"]

# How often the long run brings each of them about.
FAULTS = {
    "worker killed": 1000,
    "worker stopped past its lease": 100,
    "remote worker or its server killed": 200,
    "PostgreSQL killed": 100,
    "backend terminated": 1000,
    "answer lost after COMMIT": 200,
    "one of two shards down, hanging, slow or read-only": 50,
    "owner killed or stopped, or a resize under load": 100,
    "total_limit moved, changed or cut off under load": 100,
    "total_rate moved, changed or cut off under load": 100,
    "Spark task, executor or driver lost": 50,
    "archive killed": 50,
    "disk full or connections exhausted": 10,
    "handler misbehaved": 100,
    "flow black-holed": 50,
    "answer lost behind a pooler": 100,
    "failover": 20,
    "prune and archive at full speed beside the load": 10,
    "producer forked": 50,
    "server of the HTTP API killed": 50,
    "role's timeout met": 20,
}

# What must have happened in a long run at least once: one that never got into trouble proves nothing.
SOMETIMES = (
    "a settle",
    "a job run again",
    "a stale settle refused",
    "a key run by several workers",
    "a limit reached",
    "an enqueue refused",
    "an enqueue of unknown outcome",
    "a load committed twice",
    "a job held by a driver that was killed",
)


@dataclass(slots=True)
class Tally:
    """The counts of the round that is under way in this process."""

    faults: Counter[str] = field(default_factory=Counter)
    sometimes: Counter[str] = field(default_factory=Counter)

    def clear(self) -> None:
        self.faults.clear()
        self.sometimes.clear()


tally = Tally()


def brought(fault: str, count: int = 1) -> None:
    """Note that a fault was brought about."""
    assert fault in FAULTS, f"no such fault: {fault}"
    tally.faults[fault] += count


def came_to(counts: Mapping[str, int]) -> None:
    """Note what happened by it."""
    tally.sometimes.update(counts)
