"""Waiting for a job's end: it is looked at again and again, ever more rarely, until it has ended or the time is up."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

from penstock import admin
from penstock.app.access import Access
from penstock.client.call_in_thread import call_in_thread
from penstock.clock import system
from penstock.deadline import Deadline
from penstock.errors import JobFailed, PartitionUnavailable, ResultTimeout
from penstock.model import Job, State
from penstock.model.job_state import FINAL

__all__ = ["wait_for_result", "wait_for_result_async"]

# What a look at a job has, where whoever waits for its end gives less.
LOOK_SECONDS = 0.5


def wait_for_result(access: Access, job_id: int | str, timeout: float | None) -> Any:
    """A job's result, or its error raised; `ResultTimeout` where it has not ended in that time."""
    if access.testing is not None:
        return access.testing.result(int(job_id))
    if timeout is None:
        return _wait(access, job_id)
    # However short it is, the job is looked at once.
    with access.begin_call(max(timeout, LOOK_SECONDS), is_change=False) as deadline:
        return _wait(access, job_id, deadline, max(timeout, 0.0))


async def wait_for_result_async(access: Access, job_id: int | str, timeout: float | None) -> Any:  # noqa: ASYNC109
    """The same for coroutines."""
    if timeout is None:
        return await asyncio.to_thread(wait_for_result, access, job_id, None)
    return await call_in_thread(lambda: wait_for_result(access, job_id, timeout), max(timeout, LOOK_SECONDS))


def _wait(access: Access, job_id: int | str, deadline: Deadline | None = None, seconds: float = inf) -> Any:
    until = system.monotonic() + seconds
    pause = 0.002
    is_seen = False
    while True:
        job = _look(access, job_id, deadline, is_seen=is_seen)
        is_seen = True
        if job.state == State.SUCCEEDED:
            return job.result
        if job.state in FINAL:
            raise JobFailed(job.id, job.state, job.error)
        left = until - system.monotonic()
        if left <= 0:
            raise ResultTimeout(job.id, seconds)
        system.sleep(min(pause, left))
        pause = min(pause * 1.5, 0.25)


def _look(access: Access, job_id: int | str, deadline: Deadline | None, *, is_seen: bool) -> Job:
    """The job. A shard that is down is waited for, but not beyond the deadline; without one, for a request's time."""
    asked_at = system.monotonic()
    try:
        if deadline is not None:
            return admin.job(access.databases, job_id, waits=True)
        with access.begin_call(is_change=False):
            return admin.job(access.databases, job_id, waits=True)
    except PartitionUnavailable as error:
        # It is given up up to half a second before, where the next try would come too late.
        if deadline is None or deadline.left() > 0.5:
            raise
        # A look that the end of the time cut short says nothing about the database.
        is_short = is_seen and system.monotonic() - asked_at < 0.5
        unanswered = None if is_short else str(error)
        raise ResultTimeout(int(job_id), deadline.seconds, unanswered=unanswered) from error
