"""Jobs over HTTP: to look at them, and to wait for one."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import Annotated

from msgspec import Meta, Struct

from penstock.model import Explanation, Job, JobPage
from penstock.model.job import JobDetail
from penstock.model.job_state import FINAL
from penstock.server.call import Call
from penstock.server.job_filters import JobsQuery, query_filters
from penstock.server.narrowing import explanation_for, filters_for, job_for, jobs_for
from penstock.server.operation import Operations

__all__ = ["jobs"]

LONGEST_WAIT_SECONDS = 30.0
jobs = Operations()


class WaitQuery(Struct, frozen=True, kw_only=True):
    """For how many seconds to wait for the job's end."""

    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT_SECONDS)] = 0.0


@jobs.add("GET", "/jobs", may="read", is_narrowed=True)
def list_jobs(call: Call, query: JobsQuery) -> JobPage:
    """Jobs that match, newest first.

    Give `next` as `before` to go on; without it there is nothing more. A filter that matches little is looked for for
    about a second: the page may be short, or empty, and there is more all the same.
    """
    filters = filters_for(call.caller, query_filters(query))
    page = call.app.job_page(limit=query.limit, before=query.before, **filters)
    shown = jobs_for(call, page.jobs)
    return JobPage(jobs=shown, next=page.next, searched_to=page.searched_to, unavailable=page.unavailable)


@jobs.add("GET", "/jobs/{job_id}", may="read", is_narrowed=True)
async def read_job(call: Call, job_id: str, query: WaitQuery) -> JobDetail:
    """One job, with its failed attempts, the jobs it was enqueued after, and its children: those that wait for it.

    With `wait` it is answered when the job has ended, or as it is when so many seconds are over.
    """
    loop, ends = asyncio.get_running_loop(), call.services.job_ends
    until = loop.time() + query.wait
    job = await call.look(lambda: job_for(call, job_id))
    while job.state not in FINAL and (left := until - loop.time()) > 0 and not call.services.stopping.is_set():
        await ends.wait(job.id, left)
        async with ends.turn:
            job = await call.look(lambda: job_for(call, job_id))
    async with ends.turn:
        return await call.look(lambda: _with_children(call, job))


@jobs.add("GET", "/jobs/{job_id}/explain", may="read", is_narrowed=True)
def explain_job(call: Call, job_id: str) -> Explanation:
    """Why a job is not running. A tenant's token is told nothing of other jobs."""
    caller = call.caller
    return explanation_for(call, call.app.explain(job_id, queues=caller.queues, tenant=caller.tenant))


def _with_children(call: Call, job: Job) -> JobDetail:
    children = call.app.children(job.id, queues=call.caller.queues, tenant=call.caller.tenant)
    return JobDetail(**{each.name: getattr(job, each.name) for each in fields(Job)}, children=children)
