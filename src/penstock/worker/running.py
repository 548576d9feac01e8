"""Running one job: its arguments are decoded, its handler called, its end noted in the job itself."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.clock import system, ticks
from penstock.errors import InvalidInput
from penstock.log_records import current_job, log_about
from penstock.model.encoding import encode_result
from penstock.model.error_text import describe
from penstock.task.context import Context
from penstock.task.own_loop import Submit
from penstock.task.verdict import Verdict, judge
from penstock.worker.backlog import Backlog
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.context import Registration, WorkerContext
from penstock.worker.hooks import Event, Hooks

__all__ = ["arguments_of", "begin_async", "may_start", "note_error", "note_result", "run_inline", "started"]

log = logging.getLogger("penstock")


def may_start(job: ClaimedJob, backlog: Backlog) -> bool:
    """Note the start; False where the lease may have run out, or the job waited too long on its way here."""
    job.started = job.ended = started = ticks()
    if started > backlog.valid_until:
        job.started = job.ended = 0
        backlog.put_back(job)
        return False
    if job.members is not None:
        # What of a batch may not start ends by itself; without any job the batch does not start.
        for member in job.members:
            member.started = member.ended = started
        job.members = [member for member in job.members if not _has_ended(member, backlog)]
        if not job.members:
            return False
    elif (job.expires_at or backlog.asked_to_stop) and _has_ended(job, backlog):
        return False
    if current_job.is_wanted:
        current_job.note(job.log_fields_while_running)
    if log.isEnabledFor(logging.DEBUG):
        log_about(job.log_fields, logging.DEBUG, "%s starts, attempt %d", job.described, job.lease.attempt)
    return True


def _has_ended(job: ClaimedJob, backlog: Backlog) -> bool:
    """Whether a job that was about to start has ended instead: it waited too long, or is not wanted any more."""
    if job.expires_at and job.started > job.expires_at:
        job.verdict = Verdict("expired")
    elif job.id in backlog.asked_to_stop:
        job.verdict = Verdict("cancelled", "stopped on request before it started")
    else:
        return False
    backlog.end(job)
    return True


def run_inline(job: ClaimedJob, registration: Registration, hooks: Hooks, submit: Submit) -> None:
    """Run a plain function in this thread; what of its middleware is async runs on the loop that `submit` leads to."""
    task = job.task
    try:
        if hooks.wants_started:
            hooks.call(started(job))
        if task.middleware.functions:
            result = task.middleware.run(*_within(job, registration), submit)
        else:
            result = task.function(**arguments_of(job, registration))
        if result is not None:
            note_result(job, result)
    except (
        BaseException
    ) as error:  # Whatever a handler raises, SystemExit too, is the end of its job, not of the worker.
        note_error(job, error)
    job.ended = ticks()


def begin_async(job: ClaimedJob, registration: Registration) -> Awaitable[Any]:
    """The run of an async handler, to be awaited."""
    task = job.task
    if task.middleware.functions:
        return task.middleware.run_async(*_within(job, registration))
    run: Awaitable[Any] = task.function(**arguments_of(job, registration))
    return run


def _within(job: ClaimedJob, registration: Registration) -> tuple[Context, dict[str, Any], Callable[[], Any]]:
    """What middleware is given: the context, the arguments, and the handler to be called with these."""
    task, context = job.task, WorkerContext(job, registration)
    args = task.arguments.decode(job.args)
    parameter = task.arguments.context_parameter
    given = {} if parameter is None else {parameter: context}
    return context, args, lambda: task.function(**args, **given)


def arguments_of(job: ClaimedJob, registration: Registration) -> dict[str, Any]:
    """The handler's keyword arguments, the context among them if it wants one."""
    named = job.task.arguments.decode(job.args)
    if job.task.arguments.context_parameter is not None:
        context: Context = WorkerContext(job, registration)
        named[job.task.arguments.context_parameter] = context
    return named


def note_result(job: ClaimedJob, result: Any) -> None:
    """Keep what a handler returned. What is not JSON fails the job for good: running it again would not help."""
    try:
        job.result = encode_result(result)
    except InvalidInput as error:
        job.verdict = Verdict("failed", describe(error))


def note_error(job: ClaimedJob, error: BaseException, text: str | None = None, unit: float | None = None) -> None:
    """Decide what becomes of a job whose handler raised; `text` describes an error that came without its traceback, and
    `unit` is the chance in when it is retried, where several have the same.
    """
    try:
        unit = system.random_unit() if unit is None else unit
        job.verdict = judge(job.task, job.lease.attempt, error, unit, is_cancelled=job.is_cancelled, text=text)
    except BaseException as problem:  # An exception class of the user's may break anything that looks at it.
        job.verdict = Verdict("failed", f"{type(error).__name__} (and {type(problem).__name__} while looking at it)")


def started(job: ClaimedJob) -> Event:
    """What the `started` hooks are told."""
    task = job.task
    return Event(name="started", job_id=job.id, queue=task.queue, task=task.name, attempt=job.lease.attempt)
