"""Producing over HTTP: one job, several, or a line of JSON for each; durable when it is answered."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from penstock.app import App
from penstock.client.options import Options
from penstock.client.pending import PendingJob, PendingRows, prepare
from penstock.errors import InvalidInput, NotFound
from penstock.model.checks import JOBS_A_CALL, RESERVED_PREFIX, checked_job_id, checked_name, key_to_bytes
from penstock.model.trace_context import trace_of_headers
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
# Fewer are looked at one by one.
FEWEST_ALIKE = 10
CALL_KEY = "Idempotency-Key"
produce = Operations()


class Earlier(Struct, frozen=True, forbid_unknown_fields=True):
    """A job of the same call, by its place in it, counted from 0."""

    item: Annotated[int, Meta(ge=0)]


class JobRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to be enqueued. What is left out is as the task or the queue has it.

    `priority` is 0 (first) to 9, and 5 unless the task says otherwise; `delay` counts seconds, `run_at` is a time with
    its zone; `after` names jobs to wait for, `on_parent_failure` says what is done where one of them fails. With
    `idempotency_key` the job is enqueued once, with `unique` not while the same one waits: by its arguments, or by
    `unique_key`. `created_by` and `tags` are for finding it again.
    """

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


# What jobs of a call may have in common: all but their arguments and keys.
_options_of = attrgetter(*(name for name in JobRequest.__struct_fields__ if name not in ("args", "key")))


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
    one from it. A job's key is needed where the task is ordered by key, unless the server's app declares the task. A
    header `traceparent` that is sampled is kept with each job, and `tracestate` beside it.
    """
    requests = _read(body, call.headers.get("content-type", JSON))
    _check_tenants(requests, call.caller.tenant)
    call_key = _call_key(call)
    rows = _alike(call, queue, requests) if call_key is None else None
    if rows is not None:
        return Enqueued(ids=list(map(str, call.app.sender.send_rows(rows))))
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


def _call_key(call: Call) -> str | None:
    """What makes the call one that may be repeated. An empty one would make all calls the same that have none."""
    given = call.headers.getlist(CALL_KEY)
    if len(given) > 1:
        raise InvalidInput(CALL_KEY, "it is given twice; give it once")
    if given and not given[0].strip():
        raise InvalidInput(CALL_KEY, "it is empty; give each call its own, or leave the header out")
    return given[0] if given else None


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


def _alike(call: Call, queue: str, requests: Sequence[JobRequest]) -> PendingRows | None:
    """Several jobs that differ in their arguments and keys only: checked and written together, at a fraction of the
    cost. None where they are others, or one of them is to be refused: then each is looked at by itself.
    """
    if len(requests) < FEWEST_ALIKE:
        return None
    first = requests[0]
    if first.after or first.idempotency_key is not None or first.unique is not None:
        return None
    in_common = _options_of(first)
    if not all(_options_of(each) == in_common for each in requests):
        return None
    try:
        options = _options(call, first, [], None)
        definition = _definition(call.app, queue, checked_name("task", first.task))
        args = [request.args for request in requests]
        encoded = definition.arguments.encode_many(args)
        keys: list[bytes | None] | None = None
        if definition.key is not None or any(request.key is not None for request in requests):
            keys = [_key(definition, request) for request in requests]
    except InvalidInput:
        return None
    return PendingRows(definition, options, encoded, keys)


def _key(definition: TaskDefinition, request: JobRequest) -> bytes | None:
    given = key_of("key", request.key)
    return definition.key_of(request.args) if given is None else key_to_bytes(given)


def _check_parents(call: Call, after: Sequence[str | int | Earlier], known: set[int]) -> None:
    """To a narrow token a job that it is not for is unknown, also as one to wait for. `known` are some of its own."""
    caller = call.caller
    for parent in after if caller.is_narrow else ():
        if isinstance(parent, Earlier) or (id_ := checked_job_id(parent, "after")) in known:
            continue
        try:
            known.add(call.app.job(id_, queues=caller.queues, tenant=caller.tenant).id)
        except NotFound:
            raise unknown_parent(id_) from None


def _job(
    call: Call, queue: str, request: JobRequest, index: int, earlier: Sequence[PendingJob], call_key: str | None
) -> PendingJob:
    after = [_parent(parent, index, earlier) for parent in request.after]
    options = _options(call, request, after, _own_key(request, index, call_key), key=key_of("key", request.key))
    definition = _definition(call.app, queue, checked_name("task", request.task))
    is_from_call = request.idempotency_key is None and request.unique is None
    return _in_own_space(prepare(definition, request.args, options), call.caller, is_from_call=is_from_call)


def _options(
    call: Call,
    request: JobRequest,
    after: Sequence[str | int | PendingJob],
    idempotency_key: str | None,
    key: str | bytes | int | None = None,
) -> Options:
    options = Options.checked(
        priority=request.priority,
        run_at=request.run_at,
        delay=request.delay,
        after=after,
        on_parent_failure=request.on_parent_failure,
        idempotency_key=idempotency_key,
        unique=request.unique,
        unique_key=request.unique_key,
        key=key,
        tenant=request.tenant if call.caller.tenant is None else call.caller.tenant,
        created_by=request.created_by,
        tags=request.tags,
    )
    trace = trace_of_headers(call.headers.get("traceparent"), call.headers.get("tracestate"))
    return options.with_trace(trace) if trace else options


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
