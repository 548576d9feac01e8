"""Keeping to what a narrow token is for: some queues, or a tenant.

A job outside of that is as one that does not exist, and is not told from one by its text or by what is asked for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from penstock.errors import InvalidInput
from penstock.model import Explanation, Job
from penstock.model.job_state import FINAL, State
from penstock.server.call import Call
from penstock.server.caller import Caller
from penstock.server.problem import ProblemError

__all__ = ["check_sees", "explanation_for", "filters_for", "job_for", "jobs_for", "queue_for", "refuse_tenant"]

# As the function why_cancelled tells of it.
_PARENT = re.compile(r"(?:^|(?<=: ))parent ([0-9]+)\b")


def job_for(call: Call, job_id: int | str) -> Job:
    """A job as whoever calls may see it, or NotFound."""
    caller = call.caller
    (job,) = jobs_for(call, [call.app.job(job_id, queues=caller.queues, tenant=caller.tenant)])
    return job


def jobs_for(call: Call, jobs: list[Job]) -> list[Job]:
    """Jobs that whoever calls may see, as he may see them: without the parents that he may not, or arguments."""
    caller = call.caller
    if unknown := _unknown(call, {parent for job in jobs for parent in job.after}):
        jobs = [
            replace(
                job,
                after=[parent for parent in job.after if parent not in unknown],
                error=None if job.error is None else _without_parents(job.error, unknown),
            )
            for job in jobs
        ]
    return [_hide_arguments(job) for job in jobs] if caller.hides_args else jobs


def check_sees(call: Call, job_id: str) -> None:
    """NotFound for a job that a narrow token may not touch."""
    if call.caller.is_narrow:
        call.app.job(job_id, queues=call.caller.queues, tenant=call.caller.tenant)


def filters_for(caller: Caller, given: Mapping[str, Any]) -> dict[str, Any]:
    """By what jobs are chosen, of what was given and what the token is for."""
    filters = {name: value for name, value in given.items() if value is not None}
    if caller.tenant is not None and filters.setdefault("tenant", caller.tenant) != caller.tenant:
        raise InvalidInput("tenant", "this token is another tenant's; leave it out")
    if caller.queues is not None:
        filters["queue"] = queue_for(caller, filters.get("queue"))
    return filters


def queue_for(caller: Caller, given: str | None) -> str:
    """The queue that a token for some queues means."""
    queues = caller.queues or frozenset()
    if given is None and len(queues) == 1:
        return next(iter(queues))
    if given is None:
        raise InvalidInput("queue", f"this token is for several queues; give one of {', '.join(sorted(queues))}")
    if given not in queues:
        raise ProblemError("forbidden", "this token is for other queues")
    return given


def refuse_tenant(caller: Caller) -> None:
    """Refuse a tenant's token what tells of others; a token for some queues may go on."""
    if caller.tenant is not None:
        raise ProblemError("forbidden", "a tenant's token may not do this: it would tell of other tenants")


def _hide_arguments(job: Job) -> Job:
    """A job without what only those see who may see arguments."""
    nothing = cast("Any", None)
    return replace(
        job,
        args=nothing,
        result=None,
        error=None,
        failures=[replace(failure, error=nothing) for failure in job.failures],
        edits=[replace(edit, args=nothing) for edit in job.edits],
    )


def explanation_for(call: Call, found: Explanation) -> Explanation:
    """Why a job does not run, as far as whoever calls may know."""
    caller = call.caller
    if caller.tenant is not None:
        found = _without_others(found)
    named = {*found.detail.get("parents", ()), *found.detail.get("dead", ())}
    error = found.detail.get("error") or ""
    if unknown := _unknown(call, named | {int(id_) for id_ in _PARENT.findall(error)}):
        found = _without_unknown(found, unknown)
    if caller.hides_args and found.detail.get("error") is not None:
        found = replace(found, reason=f"finished: {found.state}", detail={**found.detail, "error": None})
    return found


def _unknown(call: Call, ids: set[int]) -> set[int]:
    """Those of these jobs that whoever calls may not know of."""
    caller = call.caller
    if not ids or not caller.is_narrow:
        return set()
    return ids - call.app.known_jobs(ids, queues=caller.queues, tenant=caller.tenant)


def _without_parents(text: str, unknown: set[int]) -> str:
    """Why a job was cancelled, without which parent of it was the reason."""
    return _PARENT.sub(lambda found: "a parent" if int(found[1]) in unknown else found[0], text)


def _without_unknown(found: Explanation, unknown: set[int]) -> Explanation:
    """Nothing of parents in other queues but that there are some."""
    detail = dict(found.detail)
    for name in ("parents", "dead"):
        if name in detail:
            detail[name] = [id_ for id_ in detail[name] if id_ not in unknown]
    if detail.get("error") is not None:
        detail["error"] = _without_parents(detail["error"], unknown)
        return replace(found, reason=_without_parents(found.reason, unknown), detail=detail)
    is_blocked = found.state is State.BLOCKED
    return replace(
        found, reason=f"{'blocked by' if is_blocked else 'cancelled for'} jobs that it comes after", detail=detail
    )


def _without_others(found: Explanation) -> Explanation:
    """Nothing of other jobs: neither which there are nor how many, and not who works."""
    if found.reason.startswith(("paused:", "no worker")):
        reason = found.reason
    elif found.state in FINAL and "error" in found.detail:
        return replace(found, detail={name: found.detail[name] for name in ("finished_at", "error")})
    else:
        reason = {
            State.SCHEDULED: f"scheduled: due at {found.detail.get('run_at')}",
            State.BLOCKED: "blocked by jobs that it comes after",
            State.READY: "waiting for its turn",
            State.RUNNING: "running",
        }.get(found.state, f"finished: {found.state}")
    return replace(found, reason=reason, detail={})
