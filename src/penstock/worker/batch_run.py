"""Running a batch: its jobs are decoded, its handler called with a list of them, and the end of each noted.

None says that all went well, and a list has for each job, in order, its result or an exception that fails it. A handler
that raises fails all of them. One that gives anything else breaks its contract, and would with every batch: its jobs go
back as they were, and the worker ends.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from penstock.clock import system, ticks
from penstock.errors import InvalidInput
from penstock.task.batch_arguments import BatchArguments, find_breach
from penstock.task.batch_context import JobsContext
from penstock.task.context import BatchContext
from penstock.task.own_loop import Submit
from penstock.task.verdict import Verdict
from penstock.worker.backlog import Backlog
from penstock.worker.claimed_job import ClaimedBatch, ClaimedJob
from penstock.worker.context import Registration, WorkerContext
from penstock.worker.hooks import Hooks
from penstock.worker.running import note_error, note_result, started

__all__ = [
    "begin_batch",
    "break_contract",
    "decode_members",
    "end_batch",
    "note_all",
    "note_outcomes",
    "run_batch_inline",
    "suspect_all",
]

log = logging.getLogger("penstock")


def run_batch_inline(batch: ClaimedBatch, backlog: Backlog, hooks: Hooks, submit: Submit) -> None:
    """Run a batch's plain function in this thread, within the middleware, and hand it in."""
    items, jobs = decode_members(batch)
    if jobs:
        try:
            if hooks.wants_started:
                for job in jobs:
                    hooks.call(started(job))
            context, call = begin_batch(batch, items, jobs, backlog.registration)
            given = batch.task.middleware.run(context, items, call, submit)
            note_outcomes(batch, jobs, given, backlog)
        except BaseException as error:  # Whatever a handler raises, SystemExit too, is the end of its batch.
            note_all(jobs, error)
    end_batch(batch)
    backlog.end_batch(batch)


def begin_batch(
    batch: ClaimedBatch, items: list[Any], jobs: Sequence[ClaimedJob], registration: Registration
) -> tuple[BatchContext, Callable[[], Any]]:
    """What middleware is given beside the list: the context, and the handler to be called."""
    context: BatchContext = JobsContext([WorkerContext(job, registration) for job in jobs])
    return context, functools.partial(batch.task.function, **_arguments_of(batch).named(items, context))


def decode_members(batch: ClaimedBatch) -> tuple[list[Any], list[ClaimedJob]]:
    """What the handler is given for each job, and those jobs; one that cannot be decoded fails, and is left out."""
    items, jobs = [], []
    arguments = _arguments_of(batch)
    for job in batch.members:
        try:
            items.append(arguments.decode_item(job.args))
            jobs.append(job)
        except BaseException as error:  # A model's own validators may raise anything.
            note_error(job, error)
    return items, jobs


def _arguments_of(batch: ClaimedBatch) -> BatchArguments:
    arguments = batch.task.arguments
    assert isinstance(arguments, BatchArguments)  # noqa: S101 - a task with batch= has these
    return arguments


def note_outcomes(batch: ClaimedBatch, jobs: Sequence[ClaimedJob], given: Any, backlog: Backlog) -> None:
    """Keep what a handler gave for each of its jobs."""
    breach = find_breach(given, len(jobs))
    if breach is not None:
        break_contract(batch, jobs, breach, backlog)
        return
    for job, outcome in zip(jobs, given or (), strict=False):
        if isinstance(outcome, BaseException):
            note_error(job, outcome)
        elif outcome is not None:
            note_result(job, outcome)


def break_contract(batch: ClaimedBatch, jobs: Sequence[ClaimedJob], breach: str, backlog: Backlog) -> None:
    """Let the jobs go back as they were, and end the worker: the handler would do the same with every batch."""
    task = batch.task
    # First: nothing more is taken once a conductor knows that it is to stop.
    backlog.end_worker(
        InvalidInput(
            "handler",
            f"task {task.name!r} of queue {task.queue!r} broke its contract: {breach}. The worker ends: the jobs of "
            "that batch are back in the queue, and no attempt was counted",
        )
    )
    for job in jobs:
        job.verdict = Verdict("release")


def note_all(jobs: Sequence[ClaimedJob], error: BaseException, text: str | None = None) -> None:
    """Fail all jobs of a batch; those that are retried are due together."""
    unit = system.random_unit()
    for job in jobs:
        note_error(job, error, text, unit)


def suspect_all(jobs: Sequence[ClaimedJob], error: BaseException) -> None:
    """What ran a batch has died, and any of its jobs may be the one that killed it: none is charged an attempt, and
    each runs alone from now on, so that it is charged then. A job that was alone is known.
    """
    suspects = [] if len(jobs) == 1 else [job for job in jobs if not job.is_cancelled]
    for job in jobs:
        if job in suspects:
            job.verdict = Verdict("suspect")
        else:
            note_error(job, error)
    if suspects:
        told = (error, len(jobs), suspects[0].id)
        log.warning("%s while it had a batch of %d jobs; they run again, each alone, the first is job %d", *told)


def end_batch(batch: ClaimedBatch) -> None:
    """Note that the handler has returned. Its time is shared out evenly: nobody can tell what each job took of it."""
    now = ticks()
    share = max((now - batch.started) // max(len(batch.members), 1), 1)
    for job in batch.members:
        job.interrupt = None
        job.ended = job.started + share
    batch.ended = max(now, batch.started + 1)
