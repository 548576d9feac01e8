"""Job figures: how many attempts ended here and how, how long their jobs had waited and their handlers ran, by task.

Kept only where somebody asked for them, of what a turn has settled: a job costs nothing on its way, and a turn as much
as sorting the times of its jobs. Each database worker has its own, written by its conductor alone; whoever reads them
adds them up and may find the last turn half written.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from penstock.task.definition import TaskDefinition
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.ended_jobs import EndedJobs

__all__ = ["BOUNDS", "Histogram", "JobFigures", "TaskFigures"]

# The upper bounds of the buckets, in seconds, as Prometheus is told them.
BOUNDS = (
    "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5",
    "1", "2.5", "5", "10", "30", "60", "300", "1800", "7200",
)  # fmt: skip
_NANOSECONDS = tuple(round(float(bound) * 1e9) for bound in BOUNDS)
# From so many values on sorting them is quicker than looking up each.
_WORTH_SORTING = 12

_lease_of = attrgetter("lease")
_task_of = attrgetter("task")


class Histogram:
    """How many values fell into each bucket, the last of which has no bound; in nanoseconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0

    def add(self, values: list[int]) -> None:
        """Take in values; their list is sorted by it."""
        counts = self.counts
        if len(values) < _WORTH_SORTING:
            for value in values:
                counts[bisect_left(_NANOSECONDS, value)] += 1
        else:
            values.sort()
            low, end = 0, len(values)
            for bucket, bound in enumerate(_NANOSECONDS):
                high = bisect_right(values, bound, low)
                counts[bucket] += high - low
                if high == end:
                    break
                low = high
            else:
                counts[-1] += end - low
        self.total += sum(values)


class TaskFigures:
    """Those of one task."""

    __slots__ = ("ends", "late", "queue", "run", "task", "wait")

    def __init__(self, queue: str, task: str) -> None:
        self.queue = queue
        self.task = task
        self.wait = Histogram()
        self.run = Histogram()
        # By how they ended, as settles name it.
        self.ends: Counter[str] = Counter()
        # Ends that were refused: the job was not this worker's any more.
        self.late = 0


class JobFigures:
    """Those of every task that a database worker has a handler for."""

    def __init__(self, tasks: Iterable[TaskDefinition]) -> None:
        self._by_task = {(task.queue, task.name): TaskFigures(task.queue, task.name) for task in tasks}

    def __iter__(self) -> Iterator[TaskFigures]:
        return iter(self._by_task.values())

    def note(self, ended: EndedJobs, not_held: Sequence[tuple[int, int]], now: float, now_ticks: int) -> None:
        """By the conductor: these ends were settled, but for some that were refused; `now` and `now_ticks` are the same
        moment, by the clock of leases and by that of jobs.
        """
        refused = set(not_held)
        for lease, members in groupby(ended.jobs, _lease_of):
            ready_at = now_ticks - int((now - lease.taken_at + max(lease.waited_seconds, 0.0)) * 1e9)
            of_lease = list(members)
            parts = [(of_lease[0].task, of_lease)] if lease.task else [
                (task, list(jobs)) for task, jobs in groupby(of_lease, _task_of)
            ]  # fmt: skip
            for task, jobs in parts:
                self._note(self._by_task[task.queue, task.name], jobs, ready_at, refused)

    def _note(self, figures: TaskFigures, jobs: list[ClaimedJob], ready_at: int, refused: set[tuple[int, int]]) -> None:
        plain = [job for job in jobs if job.verdict is None]
        if refused or len(plain) < len(jobs):
            for job in jobs:
                if refused and (job.split_lease or job.lease.id, job.position) in refused:
                    figures.late += 1
                else:
                    figures.ends[job.end] += 1
            # What expired, or was cancelled before it began, has not run.
            jobs = [job for job in jobs if job.ended != job.started]
        else:
            figures.ends["succeeded"] += len(jobs)
        figures.run.add([job.ended - job.started for job in jobs])
        figures.wait.add([job.started - ready_at for job in jobs])
