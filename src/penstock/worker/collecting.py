"""What ended since the last turn, sorted for settling, and telling the hooks once it is committed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from penstock.clock import system
from penstock.policy.batch import BatchSize
from penstock.storage.settle import End, Succeeded
from penstock.task.verdict import judge
from penstock.worker.hooks import Event, Hooks
from penstock.worker.job import HeldJob
from penstock.worker.line import Line

__all__ = ["Collected", "collect", "tell"]


@dataclass(slots=True)
class Collected:
    """The ends of one turn."""

    succeeded: Succeeded = field(default_factory=Succeeded)
    ends: list[End] = field(default_factory=list)
    jobs: list[HeldJob] = field(default_factory=list)
    per_lease: dict[int, int] = field(default_factory=dict)
    count: int = 0
    soonest_due: float | None = None

    def __bool__(self) -> bool:
        return bool(self.succeeded.leases or self.ends or self.count)


def collect(line: Line, batch: BatchSize, timed_out: list[HeldJob]) -> Collected:
    """Drain what the runners handed in, and end what ran too long."""
    collected = Collected()
    if not line.done and not timed_out:
        return collected
    succeeded, per_lease, jobs = collected.succeeded, collected.per_lease, collected.jobs
    now = time.perf_counter_ns()
    times: dict[str, tuple[int, int]] = {}
    results: list[bytes | None] = []
    has_result = False
    done = line.done
    while done:
        job = done.popleft()
        if job.is_abandoned:
            continue
        lease = job.lease
        jobs.append(job)
        per_lease[lease.id] = per_lease.get(lease.id, 0) + 1
        run = job.ended - job.started
        total, count = times.get(lease.task, (0, 0))
        times[lease.task] = (total + run, count + 1)
        if job.is_settled:
            continue
        if job.verdict is None:
            succeeded.leases.append(lease.id)
            succeeded.positions.append(job.position)
            succeeded.ages.append((now - job.started) // 1000)
            succeeded.runs.append(run // 1000)
            succeeded.ranges.add(lease.range)
            results.append(job.result)
            has_result = has_result or job.result is not None
        else:
            _end(collected, job, now)
    if has_result:
        succeeded.results = results
    for task, (total, count) in times.items():
        batch.observe(task, total / count / 1e9, count)
    collected.count = len(jobs)
    for job in timed_out:
        jobs.append(job)
        per_lease[job.lease.id] = per_lease.get(job.lease.id, 0) + 1
        error = TimeoutError(f"the handler ran longer than its timeout of {job.task.timeout:g} s")
        job.verdict = judge(job.task, job.lease.attempt, error, system.random_unit(), is_cancelled=job.is_cancelled)
        job.ended = now
        _end(collected, job, now)
    return collected


def _end(collected: Collected, job: HeldJob, now: int) -> None:
    verdict = job.verdict
    assert verdict is not None  # noqa: S101
    collected.ends.append(
        End(
            lease=job.lease.id,
            position=job.position,
            range=job.lease.range,
            end=verdict.end,
            error=verdict.error,
            due_in=verdict.due_in,
            age=(now - job.started) // 1000,
            run=(job.ended - job.started) // 1000,
        )
    )
    if verdict.end in ("retry", "snooze") and verdict.due_in > 0:
        soonest = collected.soonest_due
        collected.soonest_due = verdict.due_in if soonest is None else min(soonest, verdict.due_in)


def tell(hooks: Hooks, collected: Collected, lost: list[tuple[int, int]]) -> None:
    """Call the hooks for what was committed."""
    if not (hooks.wants("succeeded") or hooks.wants("retried") or hooks.wants("failed")):
        return
    not_ours = set(lost)
    for job in collected.jobs:
        if (job.lease.id, job.position) in not_ours:
            continue
        end = "succeeded" if job.verdict is None else job.verdict.end
        name = {"succeeded": "succeeded", "retry": "retried", "failed": "failed"}.get(end)
        if name is not None:
            hooks.call(
                Event(
                    name=name,  # type: ignore[arg-type]
                    job_id=job.id,
                    queue=job.task.queue,
                    task=job.task.name,
                    attempt=job.lease.attempt,
                    error=None if job.verdict is None else job.verdict.error,
                )
            )
