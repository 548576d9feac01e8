"""Running one job: its arguments are decoded, its handler called, its end noted in the job itself."""

from __future__ import annotations

from typing import Any

from penstock.clock import system, ticks
from penstock.errors import InvalidInput
from penstock.model.encoding import encode_result
from penstock.model.error_text import describe
from penstock.task.verdict import Verdict, judge
from penstock.worker.backlog import Backlog
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.context import Context, Registration
from penstock.worker.hooks import Event, Hooks

__all__ = ["arguments_of", "may_start", "note_error", "note_result", "run_inline", "tell_started"]


def may_start(job: ClaimedJob, backlog: Backlog) -> bool:
    """Note the start; False where the lease may have run out, or the job waited too long on its way here."""
    job.started = job.ended = started = ticks()
    if started > backlog.valid_until:
        job.started = job.ended = 0
        backlog.put_back(job)
        return False
    if job.expires_at and started > job.expires_at:
        job.verdict = Verdict("expired")
        backlog.end(job)
        return False
    if backlog.asked_to_stop and job.id in backlog.asked_to_stop:
        job.verdict = Verdict("cancelled", "stopped on request before it started")
        backlog.end(job)
        return False
    return True


def run_inline(job: ClaimedJob, registration: Registration, hooks: Hooks) -> None:
    """Run a plain function in this thread."""
    task = job.task
    arguments = task.arguments
    try:
        if hooks.wants("started"):
            tell_started(job, hooks)
        if arguments.context_parameter is None:
            result = task.function(**arguments.decode(job.args))
        else:
            result = task.function(**arguments_of(job, registration))
        if result is not None:
            note_result(job, result)
    except (
        BaseException
    ) as error:  # Whatever a handler raises, SystemExit too, is the end of its job, not of the worker.
        note_error(job, error)
    job.ended = ticks()


def arguments_of(job: ClaimedJob, registration: Registration) -> dict[str, Any]:
    """The handler's keyword arguments, the context among them if it wants one."""
    named = job.task.arguments.decode(job.args)
    if job.task.arguments.context_parameter is not None:
        named[job.task.arguments.context_parameter] = Context(job, registration)
    return named


def note_result(job: ClaimedJob, result: Any) -> None:
    """Keep what a handler returned. What is not JSON fails the job for good: running it again would not help."""
    try:
        job.result = encode_result(result)
    except InvalidInput as error:
        job.verdict = Verdict("failed", describe(error))


def note_error(job: ClaimedJob, error: BaseException, text: str | None = None) -> None:
    """Decide what becomes of a job whose handler raised; `text` describes an error that came without its traceback."""
    try:
        job.verdict = judge(
            job.task, job.lease.attempt, error, system.random_unit(), is_cancelled=job.is_cancelled, text=text
        )
    except BaseException as problem:  # An exception class of the user's may break anything that looks at it.
        job.verdict = Verdict("failed", f"{type(error).__name__} (and {type(problem).__name__} while looking at it)")


def tell_started(job: ClaimedJob, hooks: Hooks) -> None:
    """Call the `started` hooks."""
    task = job.task
    hooks.call(Event(name="started", job_id=job.id, queue=task.queue, task=task.name, attempt=job.lease.attempt))
