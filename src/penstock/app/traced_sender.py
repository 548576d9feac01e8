"""What an app that traces sends jobs by: as any other does, but each call in a span whose context its jobs carry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from penstock.app.access import Access
from penstock.app.sending import AppSender
from penstock.client.pending import PendingJob, PendingRows
from penstock.tracing.call_span import call_span
from penstock.tracing.run_span import trace_run

__all__ = ["TracedSender"]


class TracedSender(AppSender):
    """An `AppSender` that traces, and whose tasks do."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.middleware.add(trace_run)
        self.middleware.traces_loads = True

    def send(self, jobs: Sequence[PendingJob], connection: Any, timeout: float | None) -> list[int]:
        if not jobs:
            return super().send(jobs, connection, timeout)
        with call_span("enqueue", _queues(jobs), len(jobs)) as span:
            ids = super().send(_with_trace(jobs, span.trace), connection, timeout)
            span.note_ids(ids)
        return ids

    def send_rows(self, rows: PendingRows) -> list[int]:
        if not rows.args:
            return super().send_rows(rows)
        with call_span("enqueue", [rows.task.queue], len(rows.args)) as span:
            ids = super().send_rows(rows._replace(options=rows.options.with_trace(span.trace)))
            span.note_ids(ids)
        return ids

    async def send_from_loop(self, rows: PendingRows) -> int:
        with call_span("enqueue", [rows.task.queue]) as span:
            job_id = await super().send_from_loop(rows._replace(options=rows.options.with_trace(span.trace)))
            span.note_ids([job_id])
        return job_id

    async def send_in_async(self, jobs: Sequence[PendingJob], connection: Any) -> list[int]:
        if not jobs:
            return await super().send_in_async(jobs, connection)
        with call_span("enqueue", _queues(jobs), len(jobs)) as span:
            ids = await super().send_in_async(_with_trace(jobs, span.trace), connection)
            span.note_ids(ids)
        return ids

    @contextmanager
    def trace_load(self, queue: str) -> Iterator[Mapping[str, str]]:
        with call_span("load", [queue]) as span:
            yield span.trace


def _queues(jobs: Sequence[PendingJob]) -> list[str]:
    return list(dict.fromkeys(job.task.queue for job in jobs))


def _with_trace(jobs: Sequence[PendingJob], trace: Mapping[str, str]) -> list[PendingJob]:
    """The jobs of a call with its trace. They are others than those given, which may be enqueued again; where one waits
    for an earlier one of the call, it waits for what that has become.
    """
    if not trace:
        return list(jobs)
    traced: dict[int, PendingJob] = {}
    for job in jobs:
        parents = tuple(each if isinstance(each, int) else traced.get(id(each), each) for each in job.options.after)
        options = replace(job.options.with_trace(trace), after=parents)
        traced[id(job)] = PendingJob(job.task, job.args_json, job.key, options)
    return [traced[id(job)] for job in jobs]
