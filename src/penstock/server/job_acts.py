"""Jobs over HTTP: to cancel, retry and reschedule them, one or many."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.errors import InvalidInput
from penstock.model import JobAct
from penstock.model.checks import checked_job_id
from penstock.model.job_state import State
from penstock.model.records import record, record_type
from penstock.server.call import Call
from penstock.server.job_filters import JobsFilter, body_filters
from penstock.server.narrowing import check_sees, filters_for
from penstock.server.operation import Operations
from penstock.server.values import Instant

__all__ = ["Counted", "job_acts"]

job_acts = Operations()
MOST_NAMED = 1_000


class JobState(Struct, frozen=True, kw_only=True):
    """A job, and the state it is in now."""

    job_id: str
    state: State


class Counted(Struct, frozen=True, kw_only=True):
    """How many jobs were changed; with `preview` how many it would be."""

    jobs: int
    preview: bool


class ActedOn(Struct, frozen=True, kw_only=True):
    """How many jobs were changed, with `preview` how many it would be; and of jobs that were named, what became of
    `each`.
    """

    jobs: int
    preview: bool
    each: list[record_type(JobAct)] | UnsetType = UNSET  # type: ignore[valid-type]


class CancelRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `reason` is kept as the job's error."""

    reason: str | None = None


class RetryRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`args` are the dead letter's arguments from now on, all of them."""

    args: dict[str, Any] | None = None


class RescheduleRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the job is to run, with a zone."""

    run_at: Instant


class RetryJobsRequest(JobsFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs are meant: those of these `ids`, or all that match; then at least one filter is given."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=MOST_NAMED)] | None = None


class CancelJobsRequest(RetryJobsRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs are meant: those of these `ids`, or all that match; then at least one filter is given.

    The `reason` is kept as the jobs' error.
    """

    reason: str | None = None


@job_acts.add("POST", "/jobs/{job_id}/cancel", may="admin", is_narrowed=True)
def cancel_job(call: Call, job_id: str, body: CancelRequest) -> JobState:
    """Cancel a job.

    One that runs is asked to stop, and is running still; one that has ended stays as it ended.
    """
    check_sees(call, job_id)
    return _now(job_id, call.app.cancel(job_id, reason=body.reason))


@job_acts.add("POST", "/jobs/{job_id}/retry", may="admin", is_narrowed=True)
def retry_job(call: Call, job_id: str, body: RetryRequest) -> JobState:
    """Run a dead letter again, also with other arguments; a job that waits for a time runs now.

    Any other job stays as it is.
    """
    check_sees(call, job_id)
    return _now(job_id, call.app.retry(job_id, args=body.args))


@job_acts.add("POST", "/jobs/{job_id}/reschedule", may="admin", is_narrowed=True)
def reschedule_job(call: Call, job_id: str, body: RescheduleRequest) -> JobState:
    """Move a waiting job to another time."""
    check_sees(call, job_id)
    return _now(job_id, call.app.reschedule(job_id, body.run_at))


@job_acts.add("POST", "/jobs/cancel", may="admin", is_narrowed=True)
def cancel_jobs(call: Call, body: CancelJobsRequest) -> ActedOn:
    """Cancel all jobs that match and have not ended, or those that are named; those that run are asked to stop."""
    if body.ids is not None:
        _refuse_filters(body)
        queues, tenant = call.caller.queues, call.caller.tenant
        return _each_told(call.app.cancel_jobs(body.ids, reason=body.reason, queues=queues, tenant=tenant))
    filters = filters_for(call.caller, body_filters(body))
    return ActedOn(jobs=call.app.cancel(preview=body.preview, reason=body.reason, **filters), preview=body.preview)


@job_acts.add("POST", "/jobs/retry", may="admin", is_narrowed=True)
def retry_jobs(call: Call, body: RetryJobsRequest) -> ActedOn:
    """Run all dead letters that match again, or with the state `scheduled` what waits for a time; or what is named."""
    if body.ids is not None:
        _refuse_filters(body)
        return _each_told(call.app.retry_jobs(body.ids, queues=call.caller.queues, tenant=call.caller.tenant))
    filters = filters_for(call.caller, body_filters(body))
    return ActedOn(jobs=call.app.retry(preview=body.preview, **filters), preview=body.preview)


def _refuse_filters(body: RetryJobsRequest) -> None:
    if body.preview or any(value is not None for value in body_filters(body).values()):
        raise InvalidInput("ids", "jobs are named, or chosen by filters: give one of the two, and no preview of ids")


def _each_told(acts: list[JobAct]) -> ActedOn:
    return ActedOn(jobs=sum(act.outcome == "done" for act in acts), preview=False, each=record(acts))


def _now(job_id: str, state: State) -> JobState:
    return JobState(job_id=str(checked_job_id(job_id)), state=state)
