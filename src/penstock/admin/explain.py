"""Why a job is not running: the one reason that holds it, and the facts behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from penstock.admin.key_reasons import key_reason
from penstock.errors import PartitionUnavailable
from penstock.model.checks import checked_job_id, key_to_bytes
from penstock.model.explanation import Explanation
from penstock.model.job import Job
from penstock.model.job_filters import JobScope
from penstock.model.job_state import FINAL, State
from penstock.model.rate import rate_text
from penstock.shards.databases import Databases
from penstock.shards.locating import at_job
from penstock.storage import Connection
from penstock.storage.catalogue.crons import database_now
from penstock.storage.inspect.blocked_keys import count_behind_dead
from penstock.storage.inspect.health import (
    ParentFacts,
    WaitingFacts,
    holder_of_job,
    is_asked_to_stop,
    on_its_way,
    parents_waited_for,
    troubles,
    why_set_aside,
    why_waiting,
)
from penstock.storage.inspect.jobs import find_job
from penstock.storage.inspect.key_reasons import KeyFacts, why_not_started
from penstock.storage.repair.control import is_dead
from penstock.storage.repair.deleting import BY_DELETE, is_of_deleted
from penstock.storage.work.permits import next_total_token, unknown_permits
from penstock.storage.work.remote_workers import remote_workers_left_out

__all__ = ["explain"]

# A job that moves between the two looks is looked for again.
_TRIES = 10
# Of what an error says: `app.job` has all of it.
_MOST_SAID = 300


def explain(databases: Databases, job_id: int | str, *, scope: JobScope | None = None) -> Explanation:
    """Why this job is not running, or that it is, or how it ended. NotFound, also where it is outside of a scope."""
    id_ = checked_job_id(job_id)
    found = at_job(databases, id_, lambda connection: _explain(connection, id_, scope))
    if isinstance(found, Explanation):
        return found
    return replace(found.explanation, reason=found.explanation.reason + _ask_lead(databases, found))


@dataclass(frozen=True, slots=True)
class _ForLead:
    """An explanation to which the shard that leads has something to add; `silent`: what it means if that is away."""

    explanation: Explanation
    add: Callable[[Connection], str]
    silent: str


def _ask_lead(databases: Databases, asked: _ForLead) -> str:
    lead = databases.lead
    try:
        return lead.ask(asked.add, timeout=3.0, writes=False)
    except PartitionUnavailable:
        return f"; {lead.breaker.label} does not answer, and {asked.silent} until it does"


def _why_no_more_permits(connection: Connection, queue: int) -> str:
    """Why permits stay where they are, if they do."""
    unknown = unknown_permits(connection, queue)
    named = ", ".join(f"shard {shard}" for shard in unknown)
    return f"; no partition gets more before {named} has answered once since the limit came" if unknown else ""


def _when_next_token(connection: Connection, queue: int) -> str:
    seconds = next_total_token(connection, queue)
    return f"; the next of the queue may start in {seconds:.1f} s" if seconds else ""


def _explain(connection: Connection, job_id: int, scope: JobScope | None) -> Explanation | _ForLead:
    # First: it may be in no table of jobs. Whose it is does not show then.
    if scope is None and (aside := why_set_aside(connection, job_id)) is not None:
        why, since, queue = aside
        return Explanation(
            job_id=job_id,
            state=State.READY,
            reason=f"set aside: {why}; repair and retry it, or cancel it",
            detail={"why": why, "since": since, "queue": queue},
        )
    job = find_job(connection, job_id, scope)
    if job.state not in (*FINAL, State.RUNNING) and is_of_deleted(connection, job_id):
        failing = _failing(connection, "end_deleted")
        return _explanation(job, f"{BY_DELETE}: the upkeep of any worker cancels it within seconds", failing)
    for _ in range(_TRIES):
        if job.state is not State.READY:
            break
        waiting = why_waiting(connection, job_id, job.task)
        if waiting is not None:
            key_facts = why_not_started(connection, job_id)
            told = _explain_ready(job, waiting, key_facts)
            return told if key_facts is None else _add_left_out(connection, waiting.queue_id, told)
        if (way := on_its_way(connection, job_id)) is not None:
            return _explain_carried(connection, job, *way)
        job = find_job(connection, job_id)
    if job.state in (State.BLOCKED, State.CANCELLED):
        parents = parents_waited_for(connection, job_id)
        if job.state is State.BLOCKED or parents is not None:
            return _explain_child(connection, job, parents or ParentFacts())
    if job.state in FINAL:
        hint, detail = _explain_dead(connection, job) if job.state is State.FAILED else ("", {})
        return _explanation(job, _how_it_ended(job) + hint, finished_at=job.finished_at, error=job.error, **detail)
    if job.state is State.SCHEDULED and job.run_at is None:
        return _explanation(job, f"paused: load {job.load!r} starts no jobs until it is resumed", load=job.load)
    if job.state is State.SCHEDULED:
        why = "retry" if job.failures else "delay"
        is_late = job.run_at is not None and job.run_at <= database_now(connection)
        failing = _failing(connection, "next_due", "promote") if is_late else {}
        return _explanation(job, f"scheduled: due at {job.run_at} ({why})", failing, run_at=job.run_at, why=why)
    return _explain_running(connection, job)


def _how_it_ended(job: Job) -> str:
    reason = (job.error or "").partition("\n")[0]
    if len(reason) > _MOST_SAID:
        reason = f"{reason[:_MOST_SAID]}..."
    if not reason or job.state is State.SUCCEEDED:
        return f"finished: {job.state}"
    return f"finished: {reason}" if reason.startswith(f"{job.state} ") else f"finished: {job.state}: {reason}"


def _explain_dead(connection: Connection, job: Job) -> tuple[str, dict[str, Any]]:
    """What a dead letter waits for, and whether it halts its key; nothing of one that was cleared."""
    if not is_dead(connection, job.id):
        return "", {}
    key = None if job.key is None else key_to_bytes(job.key)
    behind = None if key is None else count_behind_dead(connection, job.id, job.queue, key)
    if key is None or behind is None:
        return "; retry or purge it", {}
    detail = {"halted": True, "jobs_behind": behind.counts.get(key, 0), "may_be_more": behind.may_be_more}
    return "; it halts its key: retry it, or release the key", detail


def _explain_child(connection: Connection, job: Job, parents: ParentFacts) -> Explanation:
    """Of one that waits for its parents, or is cancelled for as long as one of them is a dead letter."""
    dead = [*parents.dead, *parents.elsewhere]
    what = "a dead letter" if len(dead) == 1 else "dead letters"
    if parents.elsewhere:
        what += " or cancelled for one on another shard"
    them = "it" if len(dead) == 1 else "them"
    failing = {} if dead or parents.waited_for else _failing(connection, "unblock_untold", "unblock")
    if job.state is State.BLOCKED and not dead:
        named = _name(parents.waited_for) or "parents that have just ended: upkeep lets it go"
        return _explanation(job, f"blocked by {named}", failing, parents=parents.waited_for)
    if job.state is State.BLOCKED:
        reason = f"blocked by {_name(dead)}, {what}: retry or purge {them}"
        reason += f"; and by {_name(parents.waited_for)}" if parents.waited_for else ""
    elif dead:
        reason = (
            f"cancelled for {_name(dead)}, {what}: retry {them} and it waits again, purge {them} and it stays cancelled"
        )
    else:
        reason = "cancelled for a parent that was a dead letter until just now: upkeep looks at it again"
    return _explanation(job, reason, failing, parents=parents.waited_for, dead=dead)


def _name(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids[:10]))


def _explain_running(connection: Connection, job: Job) -> Explanation:
    reason = f"running on {job.worker} since {job.started_at}"
    failing: dict[str, str] = {}
    holder = holder_of_job(connection, job.id, job.key.encode() if isinstance(job.key, str) else job.key)
    batch = [] if holder is None else holder.batch
    if holder is not None and holder.behind is not None:
        reason = f"in a run behind {holder.behind}, taken by {job.worker} at {job.started_at}: it starts when those end"
    elif batch:
        reason += f", in a batch with {_name(batch)}{', ...' if len(batch) > len(batch[:10]) else ''}"
    if holder is not None and (holder.is_gone or holder.silent_seconds is not None):
        reason = f"was running on {job.worker} since {job.started_at}, and its worker has " + (
            "ended" if holder.silent_seconds is None else f"not been heard of for {holder.silent_seconds:.0f} s"
        )
        reason += ": it runs again when a worker's upkeep finds it"
        reason += "" if holder.workers_alive else "; no worker is alive: start one"
        failing = _failing(connection, "rescue")
    if is_asked_to_stop(connection, job.id):
        return _explanation(job, f"{reason}, asked to stop", failing, worker=job.worker, batch=batch)
    return _explanation(job, reason, failing, worker=job.worker, since=job.started_at, batch=batch)


def _failing(connection: Connection, *duties: str) -> dict[str, str]:
    """Those of these duties of upkeep that fail, with their errors."""
    return {each.duty: each.error for each in troubles(connection) if each.duty in duties}


def _explain_carried(connection: Connection, job: Job, shard: int, state: str) -> Explanation:
    trouble = next((each for each in troubles(connection) if each.duty == "carry"), None)
    refused = f"; it is not taken there since {trouble.seconds:.0f} s: {trouble.error}" if trouble else ""
    becomes = {"dead": "a dead letter"}.get(state, state)
    reason = (
        f"on its way to shard {shard}, where it will be {becomes}: upkeep carries it as soon as that shard takes it"
    )
    return _explanation(job, reason + refused, shard=shard, becomes=becomes, refused=trouble.error if trouble else None)


def _explain_ready(job: Job, waiting: WaitingFacts, key_facts: KeyFacts | None) -> Explanation | _ForLead:
    facts: dict[str, Any] = {
        "workers": waiting.workers,
        "workers_that_know_the_task": waiting.workers_that_know,
        "jobs_before": waiting.jobs_before,
    }
    if waiting.is_paused:
        return _explanation(job, f"paused: queue {job.queue!r} gives out no jobs until it is resumed", **facts)
    by_key = None if key_facts is None else key_reason(job.id, job.task, key_facts)
    if (
        by_key is not None
        and key_facts is not None
        and (key_facts.halted_by is not None or key_facts.retry is not None)
    ):
        return _explanation(job, by_key[0], **by_key[1], **facts)
    if not waiting.workers:
        return _explanation(job, f"no worker: none that is alive serves queue {job.queue!r} with a task of it", **facts)
    if not waiting.workers_that_know:
        return _explanation(job, f"no worker that is alive knows task {job.task!r} of queue {job.queue!r}", **facts)
    if waiting.is_parked:
        return _explanation(
            job, f"a worker that knows task {job.task!r} has just come: it is let back in line", **facts
        )
    if waiting.earlier_shard is not None:
        shard = waiting.earlier_shard
        reason = f"partition moved: what it left on shard {shard} goes first, for its limit or rate counts there too"
        return _explanation(job, reason, earlier_shard=shard, **facts)
    if waiting.is_carried_on:
        reason = (
            "partition moved: its limit or rate came later, and this job is carried on when nothing runs here any more"
        )
        return _explanation(job, reason, **facts)
    if by_key is not None and not by_key[0].startswith("rate"):
        return _explanation(job, by_key[0], **by_key[1], **facts)
    if waiting.limit is not None and waiting.running is not None and waiting.running >= waiting.limit:
        reason = f"limit {waiting.running} of {waiting.limit}: held by {_name_running(waiting)}"
        return _explanation(
            job, reason, limit=waiting.limit, running=waiting.running, held_by=waiting.running_jobs, **facts
        )
    if waiting.total_limit is not None and waiting.running is not None and waiting.running >= waiting.permits:
        total, permits = waiting.total_limit, waiting.permits
        reason = f"total_limit {total}: this partition may run {permits or 'none'} of them for now"
        if permits and permits == waiting.running:
            reason += f", and does: held by {_name_running(waiting)}"
        elif waiting.running:
            reason += f"; what started before permits went elsewhere still runs: {_name_running(waiting)}"
        told = _explanation(
            job,
            reason,
            total_limit=total,
            permits=permits,
            running=waiting.running,
            held_by=waiting.running_jobs,
            **facts,
        )
        add = partial(_why_no_more_permits, queue=waiting.queue_id)
        return _ForLead(told, add, "no partition gets other permits")
    if waiting.total_rate is not None and not waiting.tokens:
        total_rate = rate_text(waiting.total_rate)
        told = _explanation(
            job, f"total_rate {total_rate}: this partition may start none for now", total_rate=total_rate, **facts
        )
        return _ForLead(told, partial(_when_next_token, queue=waiting.queue_id), "nothing of the queue starts")
    if waiting.rate is not None and waiting.rate_opens_in:
        rate, opens_in = rate_text(waiting.rate), waiting.rate_opens_in
        return _explanation(
            job, f"rate {rate}: the next may start in {opens_in:.1f} s", rate=rate, opens_in=opens_in, **facts
        )
    if by_key is not None:
        return _explanation(job, by_key[0], **by_key[1], **facts)
    if (fuller := _waits_for_more(job, waiting)) is not None:
        return _explanation(
            job, fuller, batch=waiting.batch, jobs=waiting.batch_jobs, within=waiting.batch_seconds, **facts
        )
    if key_facts is not None:
        return _explanation(job, f"ready: worker {key_facts.owner} starts it as soon as it has a free slot", **facts)
    if waiting.jobs_before:
        least = "at least " if waiting.is_behind_more else ""
        return _explanation(
            job, f"waiting behind {least}{waiting.jobs_before} jobs of priority {waiting.priority}", **facts
        )
    return _explanation(job, "ready: next of its priority, taken as soon as a worker has a free slot", **facts)


def _add_left_out(connection: Connection, queue: int, told: Explanation | _ForLead) -> Explanation | _ForLead:
    """Say which remote workers are given no job of its queue, so that nobody waits for them."""
    left_out = remote_workers_left_out(connection, queue)
    if isinstance(told, _ForLead) or not left_out:
        return told
    said = "".join(
        f"; remote worker {name} is given nothing of this queue: it does not know task {task!r}, which {who} does"
        for name, task, who in left_out
    )
    return replace(told, reason=told.reason + said)


def _waits_for_more(job: Job, waiting: WaitingFacts) -> str | None:
    """Of a job that waits for others, to be given to its handler with them."""
    size, jobs, seconds = waiting.batch, waiting.batch_jobs, waiting.batch_seconds
    if size is None or seconds is None or seconds <= 0:
        return None
    permits = None if waiting.total_limit is None else waiting.permits
    size = min(each for each in (size, waiting.limit, permits) if each is not None)
    if jobs is not None and jobs >= size:
        return None
    of = f"up to {size} jobs" if jobs is None else f"{size} jobs, of which {jobs} wait"
    return f"waiting to be in a batch of {of}: task {job.task!r} starts them within {seconds:.1f} s all the same"


def _name_running(waiting: WaitingFacts) -> str:
    more = ", ..." if (waiting.running or 0) > len(waiting.running_jobs) else ""
    return ", ".join(map(str, waiting.running_jobs)) + more


def _explanation(
    job: Job, reason: str, failing: Mapping[str, str] = MappingProxyType({}), **detail: Any
) -> Explanation:
    """`failing`: duties of upkeep that this job waits for."""
    if failing:
        reason += "".join(f"; upkeep's {duty} fails: {error}" for duty, error in failing.items())
        detail["failing"] = dict(failing)
    return Explanation(job_id=job.id, state=job.state, reason=reason, detail=detail)
