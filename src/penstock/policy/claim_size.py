"""How many jobs a worker claims at once.

A claim costs a round trip and a commit, so fast handlers want many jobs a claim; but what one worker holds unstarted
another cannot run, so slow handlers want no more than they have slots for. The rule: take what will start within 25 ms.
How long a job takes is a weighted mean per task in which recent jobs count most; tasks count by their share of the
recent jobs, so one that runs once a night does not slow the others all day. Until anything has run, the free slots
are what is asked for.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ClaimSize", "Wanted", "bunch_size", "most_in_run"]

HORIZON_SECONDS = 0.025
# What is taken of a run starts within this time: pauses, other priorities and hand-overs wait so long.
RUN_SECONDS = 1.0
MOST_AHEAD = 8_192
# What a slot takes at once is about this long; not fewer nor more jobs than these.
BUNCH_SECONDS = 0.001
FEWEST_IN_BUNCH = 32
MOST_IN_BUNCH = 128
# Of each new run time this much enters the mean: some thirty jobs after a change the old is forgotten.
WEIGHT = 1 / 16
# A task with a smaller share of the recent jobs than this no longer counts.
SMALLEST_SHARE = 1e-6


class Wanted(NamedTuple):
    """What to have: a job for each free slot, and so many more waiting in memory to follow them."""

    slots: int
    ahead: int


def most_in_run(job_seconds: float | None) -> int:
    """How many jobs of a run to take that are expected to take so long each; one, where nothing is known."""
    if job_seconds is None:
        return 1
    return MOST_AHEAD if job_seconds <= 0 else max(min(int(RUN_SECONDS / job_seconds), MOST_AHEAD), 1)


def bunch_size(job_seconds: float) -> int:
    """How many fast jobs that are expected to take so long each a slot takes at once."""
    if job_seconds * MOST_IN_BUNCH <= BUNCH_SECONDS:
        return MOST_IN_BUNCH
    return max(int(BUNCH_SECONDS / job_seconds), FEWEST_IN_BUNCH)


class ClaimSize:
    """What one worker has learned about how long its tasks run. Used by one thread at a time."""

    def __init__(self) -> None:
        self._mean_seconds: dict[str, float] = {}
        self._share: dict[str, float] = {}

    def observe(self, task: str, seconds: float, jobs: int = 1) -> None:
        """Learn that so many jobs of a task took `seconds` each."""
        kept = (1 - WEIGHT) ** jobs
        seconds = max(seconds, 0.0)
        mean = self._mean_seconds.get(task, seconds)
        self._mean_seconds[task] = mean * kept + seconds * (1 - kept)
        self._share = {name: share * kept for name, share in self._share.items()}
        self._share[task] = self._share.get(task, 0.0) + (1 - kept)
        for name in [name for name, share in self._share.items() if share < SMALLEST_SHARE]:
            del self._share[name], self._mean_seconds[name]

    @property
    def mean_seconds(self) -> float | None:
        """How long a job is expected to take, or None before any has run."""
        total = sum(self._share.values())
        if not total:
            return None
        return sum(self._mean_seconds[task] * share for task, share in self._share.items()) / total

    def wanted(self, free_slots: int, concurrency: int) -> Wanted:
        """What a worker with so many of its slots free should have; what it has already is for it to subtract."""
        slots = max(free_slots, 0)
        mean = self.mean_seconds
        if mean is None or mean >= HORIZON_SECONDS:
            return Wanted(slots, 0)
        starting = min(concurrency * HORIZON_SECONDS / mean, MOST_AHEAD) if mean > 0 else MOST_AHEAD
        return Wanted(slots, max(int(starting) - slots, 0))
