"""Queues and tasks as an application writes them down: declared once, then called.

A task is still a plain function when it is called; `enqueue` and its kin write jobs of it instead. Type checkers know
both by the handler's signature: a `Task[P, R]` is enqueued with P, which leaves out a first `context`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from penstock.client.call_in_thread import call_in_thread
from penstock.client.options import Options
from penstock.client.pending import PLAIN, PendingJob, PendingRows, encode, prepare
from penstock.errors import InvalidInput
from penstock.model.queue import QueueDefinition
from penstock.model.wrong_calls import explain_wrong_calls, unknown_option
from penstock.storage.connection.callers_transaction import is_async
from penstock.task.batch_arguments import BatchArguments
from penstock.task.context import Context
from penstock.task.definition import Exceptions, KeyOf, TaskDefinition, define
from penstock.task.middleware import Middleware

__all__ = ["Bound", "Queue", "Sender", "Task", "TaskWithContext"]

log = logging.getLogger("penstock")

P = ParamSpec("P")
OPTIONS = tuple(inspect.signature(define).parameters)[2:]
R = TypeVar("R")
Returned = TypeVar("Returned", covariant=True)


class Sender(Protocol):
    """Where jobs are handed in: the app."""

    @property
    def request_timeout(self) -> float: ...
    @property
    def middleware(self) -> Middleware: ...
    def send(self, jobs: Sequence[PendingJob], connection: Any, timeout: float | None) -> list[int]: ...
    def send_rows(self, rows: PendingRows) -> list[int]: ...
    def send_from_loop(self, rows: PendingRows) -> Awaitable[int]: ...
    async def send_in_async(self, jobs: Sequence[PendingJob], connection: Any) -> list[int]: ...
    def register(self, task: TaskDefinition) -> None: ...


# Protocols, not Callables: by these mypy tells the two apart by the name `context`, also where a parameter is Any.
class Handler(Protocol[P, Returned]):
    """A function that is given the arguments of a job."""

    def __call__(self, *args: P.args, **named: P.kwargs) -> Returned: ...


class HandlerWithContext(Protocol[P, Returned]):
    """A function that is given a context and the arguments of a job."""

    def __call__(self, context: Context, *args: P.args, **named: P.kwargs) -> Returned: ...


class Bound(Generic[P]):
    """A task together with options for the jobs to come."""

    __slots__ = ("_options", "_sender", "definition")

    def __init__(self, definition: TaskDefinition, sender: Sender, options: Options) -> None:
        self.definition = definition
        self._sender = sender
        self._options = options

    def job(self, *args: P.args, **named: P.kwargs) -> PendingJob:
        """A job to be enqueued with others, by `app.enqueue_many`."""
        if self._options.connection is not None or self._options.request_timeout is not None:
            raise InvalidInput(
                "connection", "connection and request_timeout belong to the call: give them to enqueue_many"
            )
        return self._prepare(args, named)

    def enqueue(self, *args: P.args, **named: P.kwargs) -> int:
        """Write one job; durable on return. Its id."""
        options = self._options
        if options.idempotency_key is not None or options.after or options.unique is not None:
            return self._send([self._prepare(args, named)])[0]
        return self._sender.send_rows(self._encode(args, named))[0]

    def enqueue_many(self, rows: Iterable[Any]) -> list[int]:
        """Write a job for each dict of arguments, all or nothing; their ids, in order. Of a batch task, items too."""
        pending = self._encode_many(rows)
        if self._options.unique is not None:
            return self._send(pending.to_jobs())
        return self._sender.send_rows(pending)

    async def aenqueue(self, *args: P.args, **named: P.kwargs) -> int:
        """`enqueue` for coroutines: as many as like await theirs, and one thread writes them together."""
        if self._options.is_plain:
            return await self._sender.send_from_loop(self._encode(args, named))
        return (await self._asend([self._prepare(args, named)]))[0]

    async def aenqueue_many(self, rows: Iterable[Any]) -> list[int]:
        """`enqueue_many` for coroutines."""
        connection = self._options.connection
        pending = self._encode_many(rows)
        if connection is not None and is_async(connection):
            return await self._sender.send_in_async(pending.to_jobs(), connection)
        if self._options.unique is not None:
            return await self._asend(pending.to_jobs())
        return await call_in_thread(lambda: self._sender.send_rows(pending), self._seconds)

    def _prepare(self, args: tuple[Any, ...], named: dict[str, Any]) -> PendingJob:
        return prepare(self.definition, self._bind(args, named), self._options)

    def _encode(self, args: tuple[Any, ...], named: dict[str, Any]) -> PendingRows:
        """One job as a row, which has no idempotency key."""
        encoded, key = encode(self.definition, self._bind(args, named), self._options)
        return PendingRows(self.definition, self._options, [encoded], None if key is None else [key])

    def _bind(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        return dict(self.definition.arguments.bind(args, named)) if args else named

    def _encode_many(self, rows: Iterable[Any]) -> PendingRows:
        """A job for each dict of arguments: as JSON, with its key."""
        if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
            raise InvalidInput(
                "rows",
                f"a list of dicts of arguments is needed, not {type(rows).__name__}; write [{{'to': 'ada'}}, ...]",
            )
        definition, options = self.definition, self._options
        for field in ("idempotency_key", "unique_key"):
            if getattr(options, field) is not None:
                raise InvalidInput(
                    field, "one key for many jobs would keep only the first; use app.enqueue_many([task.job(...)])"
                )
        rows = rows if isinstance(rows, list) else list(rows)
        if isinstance(definition.arguments, BatchArguments):
            rows = definition.arguments.fields_of_many(rows)
        args = definition.arguments.encode_many(rows)
        if options.key is not None:
            return PendingRows(definition, options, args, [options.key] * len(args))
        if definition.key is None:
            return PendingRows(definition, options, args)
        keys: list[bytes | None] = []
        try:
            for row in rows:
                keys.append(definition.key_of(dict(row)))  # noqa: PERF401  (its length names the row)
        except InvalidInput as error:
            raise InvalidInput(error.field, f"in row {len(keys)}: {error.problem}") from error
        return PendingRows(definition, options, args, keys)

    def _send(self, jobs: Sequence[PendingJob]) -> list[int]:
        return self._sender.send(jobs, self._options.connection, self._options.request_timeout)

    async def _asend(self, jobs: Sequence[PendingJob]) -> list[int]:
        connection = self._options.connection
        if connection is not None and is_async(connection):
            return await self._sender.send_in_async(jobs, connection)
        return await call_in_thread(lambda: self._sender.send(jobs, connection, self._seconds), self._seconds)

    @property
    def _seconds(self) -> float:
        given = self._options.request_timeout
        return self._sender.request_timeout if given is None else given


class Task(Bound[P], Generic[P, R]):
    """A declared task."""

    def __init__(self, definition: TaskDefinition, function: Callable[..., R], sender: Sender) -> None:
        super().__init__(definition, sender, PLAIN)
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **named: P.kwargs) -> R:
        """Call the handler, here and now."""
        return self._function(*args, **named)

    @property
    def name(self) -> str:
        """The task's name within its queue."""
        return self.definition.name

    @property
    def queue(self) -> str:
        """The queue its jobs go to."""
        return self.definition.queue

    @explain_wrong_calls
    def options(
        self,
        *,
        priority: int | None = None,
        run_at: datetime | None = None,
        delay: float | timedelta | None = None,
        after: Sequence[int | str | PendingJob] | None = None,
        on_parent_failure: Literal["cancel", "run", "wait"] = "cancel",
        idempotency_key: str | None = None,
        unique: Literal["waiting"] | None = None,
        unique_key: str | None = None,
        key: str | bytes | int | None = None,
        tenant: str | None = None,
        created_by: str | None = None,
        tags: Sequence[str] | None = None,
        connection: Any = None,
        request_timeout: float | None = None,
    ) -> Bound[P]:
        """The task with options for the jobs to come.

        With `unique="waiting"` one job waits for the same task and arguments, or for the same `unique_key`: where there
        is one its id is given, and once it has started a new one is written.
        """
        options = Options.checked(
            priority=priority,
            run_at=run_at,
            delay=delay,
            after=after,
            on_parent_failure=on_parent_failure,
            idempotency_key=idempotency_key,
            unique=unique,
            unique_key=unique_key,
            key=key,
            tenant=tenant,
            created_by=created_by,
            tags=tags,
            connection=connection,
            request_timeout=request_timeout,
        )
        return Bound(self.definition, self._sender, options)

    def __repr__(self) -> str:
        return f"Task({self.definition.queue}/{self.definition.name})"


class TaskWithContext(Task[P, R]):
    """A task as type checkers see it where its handler takes a context first: whoever calls it passes one, whoever
    enqueues does not. When the program runs it is a `Task`.
    """

    def __call__(self, context: Context, *args: P.args, **named: P.kwargs) -> R:  # type: ignore[override]
        """Call the handler, here and now."""
        return self._function(context, *args, **named)


class Declare(Protocol):
    """What `@queue.task(...)` does to a handler."""

    @overload
    def __call__(self, function: HandlerWithContext[P, R], /) -> TaskWithContext[P, R]: ...
    @overload
    def __call__(self, function: Handler[P, R], /) -> Task[P, R]: ...


class DeclareBatch(Protocol):
    """What `@queue.task(batch=...)` does: jobs are enqueued as items, or by the names of their fields, and which fit
    is known only when `enqueue` is called.
    """

    def __call__(self, function: Callable[..., R], /) -> Task[..., R]: ...


class Queue:
    """A declared queue."""

    def __init__(self, definition: QueueDefinition, sender: Sender) -> None:
        self.definition = definition
        self._sender = sender

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.definition.name

    @overload
    def task(self, function: HandlerWithContext[P, R], /) -> TaskWithContext[P, R]: ...
    @overload
    def task(self, function: Handler[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        key: KeyOf = None,
        max_attempts: int = 25,
        timeout: float | timedelta | None = None,
        backoff: float | timedelta | Callable[[int], float | timedelta] | None = None,
        retry_on: Exceptions | None = None,
        discard_on: Exceptions | None = None,
        priority: int = 5,
        executor: Literal["process"] | None = None,
    ) -> Declare: ...
    @overload
    def task(
        self,
        *,
        batch: int,
        batch_wait: float | timedelta = 0.0,
        name: str | None = None,
        key: KeyOf = None,
        max_attempts: int = 25,
        timeout: float | timedelta | None = None,
        backoff: float | timedelta | Callable[[int], float | timedelta] | None = None,
        retry_on: Exceptions | None = None,
        discard_on: Exceptions | None = None,
        priority: int = 5,
        executor: Literal["process"] | None = None,
    ) -> DeclareBatch: ...

    def task(self, *handler: Any, **options: Any) -> Any:
        """Declare a handler as a task of this queue: `@queue.task`, or with options `@queue.task(...)`."""

        def declare(function: Callable[..., R]) -> Task[..., R]:
            for name in options:
                if name not in OPTIONS:
                    raise unknown_option("a task", name, OPTIONS)
            definition = define(self.definition.name, function, **options)
            definition = dataclasses.replace(definition, middleware=self._sender.middleware)
            if self.definition.rules.per_key is not None and definition.key is None:
                log.warning(
                    "task %r of queue %r has no key=: its jobs run in no order, unless options(key=...) gives each one",
                    definition.name,
                    self.definition.name,
                )
            self._sender.register(definition)
            return Task(definition, function, self._sender)

        if not handler:
            return declare
        if len(handler) > 1 or not callable(handler[0]):
            raise InvalidInput("task", "options are given by name: @queue.task(max_attempts=5)")
        return declare(handler[0])

    def __repr__(self) -> str:
        return f"Queue({self.definition.name})"
