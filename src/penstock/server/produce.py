"""Producing over HTTP: one job, several, or a line of JSON for each; durable when it is answered."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from penstock.app import App
from penstock.client.options import Options
from penstock.client.pending import PendingJob, prepare
from penstock.errors import InvalidInput, NotFound
from penstock.model.checks import JOBS_A_CALL, RESERVED_PREFIX, checked_job_id, checked_name
from penstock.server.call import Call
from penstock.server.caller import Caller
from penstock.server.operation import JSON, NDJSON, Operations
from penstock.server.problem import ProblemError
from penstock.server.values import Base64, Instant, decode_body, decode_lines, key_of
from penstock.storage.enqueue.write import unknown_parent
from penstock.task.definition import TaskDefinition
from penstock.task.undeclared import undeclared

__all__ = ["produce"]

MOST_BYTES = 32 * 1024 * 1024
produce = Operations()


class Earlier(Struct, frozen=True, forbid_unknown_fields=True):
    """A job of the same call, by its place in it, counted from 0."""

    item: Annotated[int, Meta(ge=0)]


class JobRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to be enqueued. What is left out is as the task or the queue has it."""

    task: str
    args: dict[str, Any] = {}
    key: str | int | Base64 | None = None
    priority: int | None = None
    delay: float | None = None
    run_at: Instant | None = None
    after: list[str | int | Earlier] = []
    on_parent_failure: Literal["cancel", "run", "wait"] = "cancel"
    idempotency_key: str | None = None
    unique: Literal["waiting"] | None = None
    unique_key: str | None = None
    tenant: str | None = None
    created_by: str | None = None
    tags: list[str] = []


class JobsRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Several jobs: all are written or none, on each shard by itself."""

    jobs: list[JobRequest]


class Enqueued(Struct, frozen=True, kw_only=True):
    """The ids of the jobs, in order."""

    ids: list[str]


@produce.add(
    "POST",
    "/queues/{queue}/jobs",
    may="produce",
    is_narrowed=True,
    status=201,
    forms={JSON: (JobRequest, JobsRequest), NDJSON: (JobRequest,)},
    most_bytes=MOST_BYTES,
    pool="produce",
)
def enqueue_jobs(call: Call, queue: str, body: bytes) -> Enqueued:
    """Enqueue one job, or several.

    The header `Idempotency-Key` makes the whole call one that may be repeated: each job that has no key of its own gets
    one from it. A job's key is needed where the task is ordered by key, unless the server's app declares the task.
    """
    requests = _read(body, call.headers.get("content-type", JSON))
    _check_tenants(requests, call.caller.tenant)
    call_key = call.headers.get("idempotency-key")
    jobs: list[PendingJob] = []
    known: set[int] = set()
    for index, request in enumerate(requests):
        try:
            _check_parents(call, request.after, known)
            jobs.append(_job(call, queue, request, index, jobs, call_key))
        except InvalidInput as error:
            if len(requests) == 1:
                raise
            raise InvalidInput(f"jobs[{index}].{error.field}", error.problem) from error
    ids = call.app.enqueue_many(jobs) if jobs else []
    return Enqueued(ids=[str(id_) for id_ in ids])


def _read(body: bytes, content_type: str) -> Sequence[JobRequest]:
    if content_type.split(";")[0].strip().lower() == NDJSON:
        requests = decode_lines(body, JobRequest)
    else:
        given = decode_body(body, dict[str, msgspec.Raw])
        several = "jobs" in given
        requests = decode_body(body, JobsRequest).jobs if several else [decode_body(body, JobRequest)]
    if len(requests) > JOBS_A_CALL:
        raise ProblemError(
            "too-large", f"{len(requests)} jobs in one call are too many; give at most {JOBS_A_CALL}, or PUT a load"
        )
    return requests


def _check_tenants(requests: Sequence[JobRequest], tenant: str | None) -> None:
    """A tenant's token enqueues for that tenant alone."""
    if tenant is None:
        return
    for index, request in enumerate(requests):
        if request.tenant not in (None, tenant):
            field = "tenant" if len(requests) == 1 else f"jobs[{index}].tenant"
            raise InvalidInput(field, "this token is another tenant's; leave it out")


def _check_parents(call: Call, after: Sequence[str | int | Earlier], known: set[int]) -> None:
    """To a tenant's token a job of another tenant is unknown, also as one to wait for. `known` are some of its own."""
    tenant = call.caller.tenant
    for parent in after if tenant is not None else ():
        if isinstance(parent, Earlier) or (id_ := checked_job_id(parent, "after")) in known:
            continue
        try:
            known.add(call.app.job(id_, tenant=tenant).id)
        except NotFound:
            raise unknown_parent(id_) from None


def _job(
    call: Call, queue: str, request: JobRequest, index: int, earlier: Sequence[PendingJob], call_key: str | None
) -> PendingJob:
    caller = call.caller
    options = Options.checked(
        priority=request.priority,
        run_at=request.run_at,
        delay=request.delay,
        after=[_parent(parent, index, earlier) for parent in request.after],
        on_parent_failure=request.on_parent_failure,
        idempotency_key=_own_key(request, index, call_key),
        unique=request.unique,
        unique_key=request.unique_key,
        key=key_of("key", request.key),
        tenant=request.tenant if caller.tenant is None else caller.tenant,
        created_by=request.created_by,
        tags=request.tags,
    )
    definition = _definition(call.app, queue, checked_name("task", request.task))
    is_from_call = request.idempotency_key is None and request.unique is None
    return _in_own_space(prepare(definition, request.args, options), caller, is_from_call=is_from_call)


def _parent(parent: str | int | Earlier, index: int, earlier: Sequence[PendingJob]) -> str | int | PendingJob:
    if not isinstance(parent, Earlier):
        return parent
    if parent.item >= index:
        raise InvalidInput("after", f"item {parent.item} does not come before this one, which is item {index}")
    return earlier[parent.item]


def _own_key(request: JobRequest, index: int, call_key: str | None) -> str | None:
    """Its own, or one from the key of the call."""
    if request.idempotency_key is not None or request.unique is not None or call_key is None:
        return request.idempotency_key
    return f"{call_key}/{index}"


def _in_own_space(job: PendingJob, caller: Caller, *, is_from_call: bool) -> PendingJob:
    """The job with its key in a space of its own: a tenant's keys are nobody else's, nor are those made from the key of
    a token's call. The job shows the key as it was given.
    """
    key = job.options.idempotency_key
    space = [f"tenant {caller.tenant}"] if caller.tenant is not None else []
    if is_from_call and caller.bearer is not None:
        space.append(f"token {caller.bearer}")
    if key is not None and space:
        digest = hashlib.sha256("\x1f".join([*space, key]).encode()).hexdigest()
        job.options = replace(job.options, idempotency_key=f"{RESERVED_PREFIX}space:{digest}")
    return job


def _definition(app: App, queue: str, task: str) -> TaskDefinition:
    """The task as the server's app declares it, or one that takes any arguments: no worker need have announced it."""
    declared = app.tasks.get(queue, {}).get(task)
    return declared if declared is not None else undeclared(queue, task)
