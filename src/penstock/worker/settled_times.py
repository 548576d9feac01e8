"""How long the jobs that a turn settled had waited, and how long their handlers ran: counted by queue, for the figures
of each minute.

It is counted from the lists that the settle was told anyway, all of a turn together. Where a turn settles very many
jobs, every second, third, fourth … of them is counted for all, so that a turn costs about the same whatever it settles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.clock import system, ticks
from penstock.storage.work.leases import Lease
from penstock.upkeep.queue_times import QueueTimes
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.ended_jobs import EndedJobs
from penstock.worker.job_figures import age_of_ready

__all__ = ["SettledTimes"]

# So many jobs of a turn are counted at most.
MOST_A_TURN = 256


class SettledTimes:
    """Used by the conductor. `queue_ids`: of the queues that it works on, by name."""

    def __init__(self, times: QueueTimes, queue_ids: Mapping[str, int]) -> None:
        self._times = times
        self._queue_ids = queue_ids
        # The same by partition, as leases name them.
        self._by_partition: dict[int, int] = {}
        # How many jobs are passed over before the next that is counted.
        self._passed = 0

    def note(self, ended: EndedJobs, collected_at: float) -> None:
        """Count what ended in a turn, collected at that monotonic time. An attempt whose end was refused has waited and
        run all the same; what expired, or was cancelled before it began, has not.
        """
        found: dict[int, tuple[list[int], list[int]]] = {}
        together = 0
        step = 1 + len(ended.jobs) // MOST_A_TURN
        passed = self._passed % step
        for number, group in ended.succeeded.items():
            lease = ended.leases[number]
            waits, runs = found.setdefault(self._queue_of(lease, ended.jobs), ([], []))
            age = age_of_ready(lease, collected_at)
            waits += [age - since for since in group.ages[passed::step]]
            runs += group.runs[passed::step]
            together += len(group.runs)
            passed = (passed - len(group.runs)) % step
        if together < len(ended.jobs):
            # From the clock of leases to that of jobs.
            offset = ticks() - int(system.monotonic() * 1e9)
            for job in ended.jobs:
                if (job.verdict is not None or job.is_settled) and job.ended != job.started:
                    passed = (passed - 1) % step
                    if passed != step - 1:
                        continue
                    lease = job.lease
                    waits, runs = found.setdefault(self._queue_ids[job.task.queue], ([], []))
                    ready_at = offset + int((lease.taken_at - max(lease.waited_seconds, 0.0)) * 1e9)
                    waits.append((job.started - ready_at) // 1000)
                    runs.append((job.ended - job.started) // 1000)
        self._passed = passed
        for queue_id, (waits, runs) in found.items():
            self._times.add(queue_id, waits, runs, each=step)

    def _queue_of(self, lease: Lease, jobs: Iterable[ClaimedJob]) -> int:
        queue_id = self._by_partition.get(lease.partition_id)
        if queue_id is None:
            task = next(job.task for job in jobs if job.lease is lease)
            queue_id = self._by_partition[lease.partition_id] = self._queue_ids[task.queue]
        return queue_id
