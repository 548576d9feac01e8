"""Job figures: how many attempts ended here and how, how long their jobs had waited and their handlers ran, by task.

Kept only where somebody asked for them, and only of what a turn has settled: nothing is added to a job's way, and what
succeeded is counted lease by lease, from the times that its settle was told anyway. Each database worker has its own,
written by its conductor alone; whoever reads them may find a turn half written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from penstock.clock import system, ticks
from penstock.policy.histogram import Histogram
from penstock.storage.work.leases import Lease
from penstock.task.definition import TaskDefinition
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.ended_jobs import EndedJobs

__all__ = ["BOUNDS", "JobFigures", "TaskFigures", "age_of_ready"]

# The upper bounds of the buckets, in seconds, as Prometheus is told them.
BOUNDS = (
    "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5",
    "1", "2.5", "5", "10", "30", "60", "300", "1800", "7200",
)  # fmt: skip
_MICROSECONDS = tuple(round(float(bound) * 1e6) for bound in BOUNDS)


class TaskFigures:
    """Those of one task."""

    __slots__ = ("ends", "late", "queue", "run", "task", "wait")

    def __init__(self, queue: str, task: str) -> None:
        self.queue = queue
        self.task = task
        self.wait = Histogram(_MICROSECONDS)
        self.run = Histogram(_MICROSECONDS)
        # By how they ended, as settles name it.
        self.ends: Counter[str] = Counter()
        # Ends that were refused: the job was not this worker's any more.
        self.late = 0


class JobFigures:
    """Those of every task that a database worker has a handler for."""

    def __init__(self, tasks: Iterable[TaskDefinition]) -> None:
        self._by_task = {(task.queue, task.name): TaskFigures(task.queue, task.name) for task in tasks}
        # The same by partition and task, as leases name them.
        self._by_lease: dict[tuple[int, str], TaskFigures] = {}

    def __iter__(self) -> Iterator[TaskFigures]:
        return iter(self._by_task.values())

    def note(self, ended: EndedJobs, not_held: Sequence[tuple[int, int]], collected_at: float) -> None:
        """By the conductor: these ends, collected at that monotonic time, are settled, or refused."""
        together = 0
        if not not_held:
            for number, group in ended.succeeded.items():
                lease = ended.leases[number]
                if lease.task:
                    together += len(group.runs)
                    figures = self._of_lease(lease, ended.jobs)
                    figures.ends["succeeded"] += len(group.runs)
                    figures.run.add_all(group.runs)
                    figures.wait.add_all(group.ages, until=age_of_ready(lease, collected_at))
        if together < len(ended.jobs):
            self._note_one_by_one(ended.jobs, set(not_held))

    def _note_one_by_one(self, jobs: Sequence[ClaimedJob], refused: set[tuple[int, int]]) -> None:
        """What did not just succeed; what is of a lease with jobs of several tasks; all, where any was refused."""
        times: dict[TaskFigures, tuple[list[int], list[int]]] = {}
        # From the clock of leases to that of jobs.
        offset = ticks() - int(system.monotonic() * 1e9)
        lease: Lease | None = None
        task: TaskDefinition | None = None
        for job in jobs:
            # Jobs of a lease, and of a task, mostly follow each other.
            if job.lease is not lease:
                lease = job.lease
                ready_at = offset + int((lease.taken_at - max(lease.waited_seconds, 0.0)) * 1e9)
                is_noted = bool(lease.task) and not refused
            verdict = job.verdict
            if is_noted and verdict is None and not job.is_settled:
                continue
            if job.task is not task:
                task = job.task
                figures = self._by_task[task.queue, task.name]
                runs, waits = times.setdefault(figures, ([], []))
            if refused and (job.split_lease or lease.id, job.position) in refused:
                figures.late += 1
            else:
                figures.ends["succeeded" if verdict is None else verdict.end] += 1
            started = job.started
            # What expired, or was cancelled before it began, has not run.
            if job.ended != started:
                runs.append((job.ended - started) // 1000)
                waits.append((started - ready_at) // 1000)
        for figures, (runs, waits) in times.items():
            if runs:
                figures.run.add_all(runs)
                figures.wait.add_all(waits)

    def _of_lease(self, lease: Lease, jobs: Iterable[ClaimedJob]) -> TaskFigures:
        figures = self._by_lease.get((lease.partition_id, lease.task))
        if figures is None:
            task = next(job.task for job in jobs if job.lease is lease)
            figures = self._by_lease[lease.partition_id, lease.task] = self._by_task[task.queue, task.name]
        return figures


def age_of_ready(lease: Lease, now: float) -> int:
    """How many microseconds ago, at that monotonic time, the jobs of a lease became ready."""
    return int((now - lease.taken_at + max(lease.waited_seconds, 0.0)) * 1e6)
