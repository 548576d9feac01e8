"""What ended since the last turn, sorted for settling."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from penstock.clock import system, ticks
from penstock.model.checks import storable_text
from penstock.policy.claim_size import ClaimSize
from penstock.storage.work.leases import Lease
from penstock.storage.work.settle import End, Succeeded
from penstock.task.verdict import judge
from penstock.worker.backlog import Backlog
from penstock.worker.claimed_job import ClaimedJob

__all__ = ["EndedJobs", "collect_ended", "end_taken_away"]


_lease_of = attrgetter("lease")


@dataclass(slots=True)
class EndedJobs:
    """The ends of one turn. `jobs` are all of them, for the hooks; `leases` those that something ended of."""

    succeeded: dict[int, Succeeded] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)
    jobs: list[ClaimedJob] = field(default_factory=list)
    leases: dict[int, Lease] = field(default_factory=dict)
    soonest_due: float | None = None

    def __bool__(self) -> bool:
        return bool(self.jobs or self.ends)


def collect_ended(backlog: Backlog, claim_size: ClaimSize, taken_away: list[ClaimedJob]) -> EndedJobs:
    """Drain what the runners handed in, and end what was taken from handlers that do not come back."""
    ended = EndedJobs()
    done = backlog.done
    if not done and not taken_away:
        return ended
    groups = ended.succeeded
    now = ticks()
    pop = done.popleft
    ended.jobs = jobs = [job for _ in range(len(done)) if not (job := pop()).is_abandoned]
    for lease, members in groupby(jobs, _lease_of):
        of_lease = list(members)
        plain = [job for job in of_lease if job.verdict is None and not job.is_settled]
        if len(plain) < len(of_lease):
            for job in of_lease:
                if job.verdict is not None or job.is_settled:
                    _note_end(ended, job, now, claim_size)
            if not plain:
                continue
        group = groups.get(lease.id)
        if group is None:
            ended.leases[lease.id] = lease
            group = groups[lease.id] = Succeeded(lease.id, lease.token, lease.range)
        results = [job.result for job in plain]
        if group.results is not None or results.count(None) < len(results):
            group.results = (group.results or [None] * len(group.positions)) + results
        group.positions += [job.id & 1023 for job in plain]
        group.ages += [(now - job.started) // 1000 for job in plain]
        group.runs += [(job.ended - job.started) // 1000 for job in plain]
    for lease_id, group in groups.items():
        lease = ended.leases[lease_id]
        lease.unsettled -= len(group.positions)
        seconds, runs = sum(group.runs) / len(group.runs) / 1e6, len(group.runs)
        if lease.together > 1:
            # What is wanted is counted in slots, and a batch takes one.
            seconds, runs = seconds * lease.together, max(runs // lease.together, 1)
        claim_size.observe(lease.task, seconds, runs)
    for job in taken_away:
        jobs.append(job)
        job.ended = now
        _note_end(ended, job, now, claim_size)
    # Successes are settled before the other ends: a lease that has both is not whole yet.
    mixed = {end.lease for end in ended.ends}
    for lease_id, group in groups.items():
        group.is_whole = ended.leases[lease_id].unsettled == 0 and lease_id not in mixed
    return ended


def end_taken_away(backlog: Backlog) -> list[ClaimedJob]:
    """The jobs whose handlers do not come back, with what becomes of them: their leases end now.

    A job with a lease of its own is settled in a transaction of its handler's, which holds that lease: nobody else can
    end it before. While its handler waits to hear which lease that is, it is left to it.
    """
    ended = []
    for _ in range(len(backlog.taken_away)):
        taken, error, where = backlog.taken_away.popleft()
        # Of a batch this is asked once: its runner ends one job after the other, and all or none of them time out.
        if taken.ended != taken.started:
            # Its handler has returned after all.
            continue
        unit = system.random_unit()
        for job in taken.members or (taken,):
            if job.is_abandoned:
                # Its lease was lost.
                continue
            verdict = judge(job.task, job.lease.attempt, error, unit, is_cancelled=job.is_cancelled)
            if verdict.error and where:
                verdict = verdict._replace(error=storable_text(f"{verdict.error}\n{where}"))
            with job.taking_away:
                job.is_abandoned = not job.is_split
            if job.is_abandoned:
                # A copy: what the handler still does to the job counts for nothing.
                ended.append(copy(job))
                ended[-1].verdict = verdict
            elif job.is_splitting and job.split_lease is None:
                backlog.taken_away.append((job, error, where))
            else:
                backlog.split_leases.time_out(job, verdict)
    return ended


def _note_end(ended: EndedJobs, job: ClaimedJob, now: int, claim_size: ClaimSize) -> None:
    """Take in a job that ended otherwise, or was settled by its handler."""
    lease, verdict = job.lease, job.verdict
    lease.unsettled -= 1
    ended.leases[lease.id] = lease
    claim_size.observe(lease.task, (job.ended - job.started) / 1e9 * lease.together)
    if verdict is None or job.is_settled:
        return
    ended.ends.append(
        End(
            lease=job.split_lease or lease.id,
            token=lease.token,
            position=job.position,
            range=lease.range,
            end=verdict.end,
            error=verdict.error,
            due_in=verdict.due_in,
            age=(now - job.started) // 1000,
            run=(job.ended - job.started) // 1000,
        )
    )
    if verdict.end in ("retry", "snooze") and verdict.due_in > 0:
        soonest = ended.soonest_due
        ended.soonest_due = verdict.due_in if soonest is None else min(soonest, verdict.due_in)
