"""Where every enqueue of an app arrives: it goes to the producer, or stays in memory in a test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from penstock.app.access import Access
from penstock.app.calls import Bounded
from penstock.client.call_in_thread import call_in_thread
from penstock.client.pending import PendingJob, PendingRows, is_bound
from penstock.client.producer import Producer
from penstock.errors import InvalidInput, PartitionUnavailable, PenstockError, RequestTimeout
from penstock.forking import renew_in_children
from penstock.model.checks import checked_seconds
from penstock.storage.connection.callers_transaction import is_async
from penstock.storage.connection.error_meaning import entry_remedy
from penstock.task.definition import TaskDefinition
from penstock.task.middleware import Middleware
from penstock.worker import refuse_in_main_import

__all__ = ["AppSender", "open_traced_sender"]


class AppSender:
    """What the tasks and queues of an app send jobs by. The producer is made when it is first needed."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.producer: Producer | None = None
        # What every task of the app runs within.
        self.middleware = Middleware()
        renew_in_children(self, AppSender._forget_producer)

    @property
    def request_timeout(self) -> float:
        """How many seconds a call has."""
        return self._access.connecting.request_timeout

    def register(self, task: TaskDefinition) -> None:
        """Take in a task."""
        self._access.declarations.register(task)

    def send_many(self, jobs: object, connection: Any, request_timeout: float | None) -> list[int]:
        """`app.enqueue_many`."""
        timeout = None if request_timeout is None else checked_seconds("request_timeout", request_timeout)
        return self.send(_check_pending(jobs), connection, timeout)

    async def send_many_async(self, jobs: object, connection: Any, request_timeout: float | None) -> list[int]:
        """`app.aenqueue_many`."""
        if connection is not None and is_async(connection):
            return await self.send_in_async(_check_pending(jobs), connection)
        seconds = (
            self.request_timeout if request_timeout is None else checked_seconds("request_timeout", request_timeout)
        )
        return await call_in_thread(lambda: self.send_many(jobs, connection, request_timeout), seconds)

    def send(self, jobs: Sequence[PendingJob], connection: Any, timeout: float | None) -> list[int]:
        """Write jobs, all or nothing, on each shard by itself; their ids."""
        if self._access.testing is not None:
            return self._access.testing.enqueue(jobs)
        with self._begin(connection, timeout) as deadline:
            producer = self._open_producer_for(any(map(is_bound, jobs)), len(jobs))
            return producer.enqueue(jobs, deadline, connection)

    def send_rows(self, rows: PendingRows) -> list[int]:
        """Write many jobs of one task that are alike but for their arguments and keys; their ids."""
        if self._access.testing is not None:
            return self._access.testing.enqueue(rows.to_jobs())
        with self._begin(rows.options.connection, rows.options.request_timeout) as deadline:
            producer = self._open_producer_for(rows.keys is not None, len(rows.args))
            return producer.enqueue_rows(rows, deadline)

    def send_from_loop(self, rows: PendingRows) -> Awaitable[int]:
        """Write one job for a coroutine, without a thread of its own; its id."""
        producer = self.producer
        if producer is not None and self._access.testing is None and not self._access.declarations.has_unwritten:
            refuse_in_main_import("enqueue")
            return producer.enqueue_from_loop(rows, self._send_again)
        # What it takes to begin, such as connecting, is waited for in a thread.
        timeout = rows.options.request_timeout
        seconds = self.request_timeout if timeout is None else timeout
        return call_in_thread(lambda: AppSender.send_rows(self, rows)[0], seconds)

    def _send_again(self, rows: PendingRows) -> list[int]:
        """A call of a coroutine as a plain one: it is part of its call, which is traced already."""
        return AppSender.send_rows(self, rows)

    async def send_in_async(self, jobs: Sequence[PendingJob], connection: Any) -> list[int]:
        """Write jobs inside an asynchronous caller's transaction; their ids."""
        if self._access.testing is not None:
            return self._access.testing.enqueue(jobs)
        refuse_in_main_import("enqueue")
        producer = await asyncio.to_thread(self._open_producer)
        return await producer.enqueue_in_async(jobs, connection)

    def trace_load(self, queue: str) -> AbstractContextManager[Mapping[str, str]]:
        """Be within a load; gives the trace context that is stored with it, of which there is none here."""
        return nullcontext({})

    def close(self) -> None:
        """Let the producer go, and its threads with it."""
        if self.producer is not None:
            self.producer.close()
        self.producer = None

    def _forget_producer(self) -> None:
        """In a forked child: its threads do not run, and its locks may be held by them."""
        self.producer = None

    def _begin(self, connection: Any, timeout: float | None) -> Bounded:
        refuse_in_main_import("enqueue")
        # A caller's connection leads to a database that is there: none is created beside it.
        return self._access.begin_call(timeout, creates=connection is None)

    def _open_producer_for(self, has_bound: bool, count: int) -> Producer:
        """The producer; an error says that none of so many jobs was written. Those that a key or an idempotency key
        binds to a shard cannot go elsewhere.
        """
        try:
            return self._open_producer()
        except PartitionUnavailable as error:
            error.written = [None] * count
            # Nor does any other take what none lets in: that is no question of time.
            if has_bound or entry_remedy(error) is not None:
                raise
            refused = RequestTimeout(f"{error}; nothing was written", outcome="not written")
            refused.written = error.written
            raise refused from error

    def _open_producer(self) -> Producer:
        databases = self._access.databases
        producer = self.producer
        if producer is None:
            declarations = self._access.declarations
            producer = self.producer = Producer(databases, declarations.entry, declarations.fresh_entry)
        return producer


def open_traced_sender(access: Access) -> AppSender:
    """One that traces. OpenTelemetry is imported here, and nowhere where nobody traces."""
    try:
        from penstock.app.traced_sender import TracedSender
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("opentelemetry"):
            raise
        raise PenstockError(
            "tracing=True needs OpenTelemetry, which is not installed: pip install 'penstock-queue[trace]'"
        ) from None
    return TracedSender(access)


def _check_pending(jobs: object) -> list[PendingJob]:
    if isinstance(jobs, (str, bytes)) or not isinstance(jobs, Iterable):
        raise InvalidInput("jobs", f"a list is needed, not {type(jobs).__name__}; write [task.job(...), ...]")
    checked = list(jobs)
    for job in checked:
        if not isinstance(job, PendingJob):
            raise InvalidInput(
                "jobs", f"each is a task.job(...), not {type(job).__name__}; for dicts use task.enqueue_many"
            )
    return checked
