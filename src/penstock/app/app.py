"""The app: the one object a user holds. It declares queues, enqueues, works, and answers questions.

Nothing is connected until the first call that needs the database; what was declared until then is written by that
call. An app may be used from any number of threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from penstock import admin
from penstock.app.access import Access
from penstock.app.calls import change, change_in_steps, question
from penstock.app.connecting import Connecting
from penstock.app.declarations import Declarations
from penstock.app.inputs import (
    Filters,
    FiltersInQueue,
    Limits,
    QueueOptions,
    check_app_options,
    check_limits,
    checked_args,
    checked_filters,
    checked_queues,
    checked_retention,
    name_of,
    scope_of,
)
from penstock.app.results import wait_for_result, wait_for_result_async
from penstock.app.sending import AppSender, open_traced_sender
from penstock.app.working import Workers
from penstock.client.call_in_thread import call_in_thread
from penstock.client.options import Options
from penstock.client.pending import PendingJob, prepare
from penstock.client.task import Queue, Task
from penstock.client.testing import Testing
from penstock.model import (
    Attention,
    AuditEntry,
    BlockedKey,
    Cause,
    Check,
    Cron,
    Drain,
    Due,
    Explanation,
    FailureHistory,
    History,
    HotKeys,
    Job,
    JobAct,
    JobPage,
    Load,
    QueueDefinition,
    Resize,
    SearchHit,
    Shard,
    State,
    Stats,
    Token,
    WorkerInfo,
)
from penstock.model.checks import checked_concurrency, checked_count, checked_name, checked_seconds
from penstock.model.overview import Overview
from penstock.model.wrong_calls import explain_wrong_calls
from penstock.policy.cron import Schedule
from penstock.shards.databases import Databases
from penstock.storage import Database
from penstock.storage.connection.urls import plain_url
from penstock.task.context import Context
from penstock.task.definition import TaskDefinition
from penstock.task.middleware import Manager
from penstock.task.undeclared import undeclared
from penstock.worker import Event, EventName, Worked

__all__ = ["App"]

Wrapper = TypeVar("Wrapper", bound=Callable[[Context, Any], Manager])


class App:
    """One queue system: where its database is, which queues and tasks it has, and every question and act about them.

    Without a URL it is `$PENSTOCK_URL`, or else an embedded PostgreSQL in `.penstock`, of this folder or the nearest
    one above, which starts when it is needed and stops when the last app that uses it is closed or dead. Where there is
    none a call that only reads is refused, and any other creates it in this folder and says so in the log;
    `embedded=False` forbids embedded servers. `lease` is how many seconds a worker may be
    silent before it counts as dead, `request_timeout` how long an enqueue keeps trying, `retention` how many days
    ended jobs are kept, by final state, and what stands in the audit; `imports` names modules that hold tasks. Settings
    of the database that could lose acknowledged jobs are refused, unless `accept_data_loss` says that this is meant.
    `pooled` says whether the database is behind a transaction pooler; without it that is found out. `schema` is where
    in the database all of it lies: with two of them, two environments live in one database. With `tracing` what is
    enqueued and run is in spans of OpenTelemetry, and a job carries the trace context of the call that made it.
    """

    @explain_wrong_calls
    def __init__(
        self,
        url: str | None = None,
        *,
        shards: Sequence[str] | None = None,
        embedded_shards: int | None = None,
        embedded: bool = True,
        request_timeout: float = 30.0,
        lease: float = 15.0,
        retention: Mapping[str, float] | None = None,
        pool_size: int = 8,
        imports: Sequence[str] = (),
        accept_data_loss: bool = False,
        pooled: bool | None = None,
        schema: str = "penstock",
        tracing: bool = False,
    ) -> None:
        check_app_options(imports, accept_data_loss, pooled, tracing)
        self._lease_seconds = checked_seconds("lease", lease)
        self._retention = checked_retention(retention)
        self.imports = tuple(imports)
        self._connecting = Connecting(
            url,
            shards,
            embedded_shards,
            may_embed=embedded,
            pool_size=checked_count("pool_size", pool_size, least=2, most=1_000),
            request_timeout=checked_seconds("request_timeout", request_timeout),
            lease_seconds=self._lease_seconds,
            accept_data_loss=accept_data_loss,
            pooled=pooled,
            schema=schema,
        )
        self._declarations = Declarations(self._connecting.databases, self._connecting.learn)
        self._access = Access(self._connecting, self._declarations)
        # What tasks and queues send jobs by; not for users.
        self.sender = open_traced_sender(self._access) if tracing else AppSender(self._access)
        # What `penstock work` tells of its worker by; not for users.
        self.working = Workers(self._access, self.imports, self._lease_seconds, self._retention)

    # Declaring

    @explain_wrong_calls
    def queue(
        self,
        name: str,
        *,
        partitions: int = 1,
        order: Literal["key"] | None = None,
        per_key: int = 1,
        run: int = 1,
        limit: int | None = None,
        total_limit: int | None = None,
        rate: str | None = None,
        total_rate: str | None = None,
        per_key_rate: str | None = None,
        fair_by: Literal["tenant"] | None = None,
        weights: Mapping[str, float] | None = None,
        on_retry: Literal["hold", "pass"] | None = None,
        on_dead: Literal["continue", "halt"] | None = None,
        max_length: int | None = None,
        max_wait: float | None = None,
    ) -> Queue:
        """Declare a queue. No I/O: the next call that needs the database writes it down.

        `order="key"` runs the jobs of a key one at a time, in the order they were enqueued; `per_key` allows more of a
        key at once, started in order; `run` takes up to so many of a key in one go, which follow each other. `limit`
        bounds how many run, `rate` ("100/s", or /m, /h, /d) how many start, `per_key_rate` the same for each key;
        `fair_by="tenant"` shares the starts between tenants by `weights`. A key waits for its job's retry, unless
        `on_retry="pass"`; where attempts run out it goes on, unless `on_dead="halt"`. `limit`, `rate`, `fair_by` and
        `max_length` hold for each partition, `total_limit` bounds how many run in all of them, on whichever shards, and
        `total_rate` how many start; `max_wait` counts seconds.
        """
        definition = QueueDefinition.of(
            name,
            partitions,
            order=order,
            per_key=per_key,
            run=run,
            limit=limit,
            total_limit=total_limit,
            rate=rate,
            total_rate=total_rate,
            per_key_rate=per_key_rate,
            fair_by=fair_by,
            weights=weights,
            on_retry=on_retry,
            on_dead=on_dead,
            max_length=max_length,
            max_wait=max_wait,
        )
        return self._declarations.declare(definition, Queue(definition, self.sender))

    @change_in_steps
    def set_queue(self, name: str, **options: Unpack[QueueOptions]) -> bool:
        """Make a queue, or change one that there is; whether it is new. It is written at once, and not declared here.

        The options are those of `queue`. Those that are left out stay as they are, None takes one away; another number
        of `partitions` is a `resize`. What a queue keeps for its life, such as its order, is refused where it differs.
        """
        given: dict[str, Any] = dict(options)
        return self._declarations.set_queue(self.databases, name, given.pop("partitions", None), given)

    @property
    def tasks(self) -> dict[str, dict[str, TaskDefinition]]:
        """The tasks declared on this app, by queue and name."""
        return self._declarations.tasks

    @explain_wrong_calls
    def cron(
        self,
        name: str,
        expression: str,
        task: Task[..., Any],
        *,
        args: Mapping[str, Any] | None = None,
        timezone: str = "UTC",
    ) -> None:
        """Enqueue a job of a task by the calendar. A declaration: the next call that needs the database writes it."""
        self._declarations.declare_cron(name, expression, task, args, timezone)

    @change
    def set_cron(
        self,
        name: str,
        expression: str,
        queue: str | Queue,
        task: str,
        *,
        args: Mapping[str, Any] | None = None,
        key: str | bytes | int | None = None,
        timezone: str = "UTC",
    ) -> bool:
        """Make a cron entry, or change one that there is; whether it is new. It is written at once, and not declared.

        The task is given by name: where this app does not declare it, it may have any arguments.
        """
        definition = self.tasks.get(name_of(queue), {}).get(checked_name("task", task))
        definition = undeclared(name_of(queue), task) if definition is None else definition
        job = prepare(definition, checked_args(args), Options.checked(key=key))
        Schedule(expression, timezone)
        cron = admin.CronDefinition(
            checked_name("name", name), expression, timezone, name_of(queue), task, job.args_json, job.key
        )
        return self._declarations.set_cron(self.databases, cron)

    @question
    def crons(self) -> list[Cron]:
        """Every cron entry."""
        return admin.read_crons(self.databases)

    @question
    def due(self, queue: str | Queue | None = None) -> Due:
        """How many scheduled jobs are due within the next minute, ten minutes, hour, six hours, day, week, and later;
        of a queue or of all. Counts are exact up to two thousand rows of a span and shard.
        """
        return admin.due(self.databases, None if queue is None else [name_of(queue)])

    @change
    def pause_cron(self, name: str) -> None:
        """Fire a cron entry no more, until it is resumed."""
        admin.pause_cron(self.databases, name)

    @change
    def resume_cron(self, name: str) -> None:
        """Fire a cron entry again, from its next instant on."""
        admin.resume_cron(self.databases, name)

    @change
    def remove_cron(self, name: str) -> None:
        """Delete a cron entry; one that is still declared comes back with the next start."""
        admin.remove_cron(self.databases, name)

    @change
    def run_cron(self, name: str) -> int:
        """Enqueue a cron entry's job now, out of turn; its id."""
        return admin.run_cron(self.databases, name)

    # Enqueuing

    @explain_wrong_calls
    def enqueue_many(
        self, jobs: Sequence[PendingJob], *, connection: Any = None, request_timeout: float | None = None
    ) -> list[int]:
        """Write jobs of any tasks and queues, all or nothing, on each shard by itself; their ids, in order."""
        return self.sender.send_many(jobs, connection, request_timeout)

    @explain_wrong_calls
    async def aenqueue_many(
        self, jobs: Sequence[PendingJob], *, connection: Any = None, request_timeout: float | None = None
    ) -> list[int]:
        """`enqueue_many` for coroutines."""
        return await self.sender.send_many_async(jobs, connection, request_timeout)

    # Working

    @explain_wrong_calls
    def work(
        self,
        queues: Sequence[str | Queue] | Mapping[str, int | None] | Mapping[Queue, int | None] | None = None,
        concurrency: int = 16,
        *,
        until_idle: bool = False,
        grace: float = 30.0,
    ) -> Worked:
        """Run jobs here until `stop`, SIGTERM or SIGINT, or until nothing is left to do; what came of it.

        `queues` are names or queues, all by default; a dict caps what this worker has of each at once: {"mail": 4}.
        Queues take turns. Told to stop, it gives running handlers `grace` seconds. Raises `WorkerStuck` where more
        handlers than `concurrency` have passed their timeout and not returned, or one blocks the event loop for longer
        than `grace`.
        """
        checked_concurrency(concurrency)
        grace = checked_seconds("grace", grace)
        return self.working.work(queues, concurrency, until_idle=until_idle, grace_seconds=grace)

    @explain_wrong_calls
    async def awork(
        self,
        queues: Sequence[str | Queue] | Mapping[str, int | None] | Mapping[Queue, int | None] | None = None,
        concurrency: int = 16,
        *,
        until_idle: bool = False,
        grace: float = 30.0,
    ) -> Worked:
        """`work` for coroutines."""
        return await asyncio.to_thread(self.work, queues, concurrency, until_idle=until_idle, grace=grace)

    def stop(self) -> None:
        """End every `work` of this app gently, from any thread."""
        self.working.stop()

    @explain_wrong_calls
    def on(self, event: EventName, function: Callable[[Event], Any]) -> None:
        """Call a function, plain or async, when a job started, succeeded, was retried, failed, or jobs were rescued."""
        self.working.hooks.add(event, function)

    def middleware(self, function: Wrapper) -> Wrapper:
        """Put a context manager around every run of a handler: `@app.middleware`, the first declared outermost.

        The function gets the context and the arguments, and gives a context manager, sync or async. What the handler
        raises passes through it, and stays the job's error also where the context manager swallows it.
        """
        self.sender.middleware.add(function)
        return function

    @explain_wrong_calls
    def result(self, job_id: int | str, timeout: float | None = None) -> Any:
        """Wait for a job and give its result, or raise its error."""
        return wait_for_result(self._access, job_id, timeout)

    # Asking

    @question
    def stats(self, queue: str | Queue) -> Stats:
        """A queue's figures, and those of each of its partitions."""
        return admin.stats(self.databases, self._declarations.fresh_entry(name_of(queue)))

    @question
    def queues(self, names: Collection[str] | None = None) -> list[Stats]:
        """Every queue the database knows, with its figures; or those of these names that there are."""
        return admin.all_stats(self.databases, names)

    @question
    def queue_names(self) -> list[str]:
        """The names of the queues that the database knows, in order."""
        return admin.queue_names(self.databases)

    @question
    def overview(self) -> Overview:
        """The whole system at one look, for whoever watches."""
        return admin.overview(self.databases)

    @question
    def history(self, queue: str | Queue, minutes: int = 60) -> History:
        """A queue's figures minute by minute, of the last so many minutes; they are kept for a day."""
        return admin.history(self.databases, name_of(queue), minutes)

    @question
    def causes(
        self, queue: str | Queue | None = None, *, limit: int = 100, queues: Collection[str] | None = None
    ) -> list[Cause]:
        """Why dead letters failed: what those of a queue or of all have in common, that of most of them first.

        `app.jobs(cause=…)` lists those of one, `retry` and `purge` take it too. `queues` are those that may be told of.
        """
        scope = scope_of(queues, None)
        name = None if queue is None else name_of(queue)
        return admin.causes(self.databases, name, limit, None if scope is None else scope.queues)

    @question
    def failures(self, queue: str | Queue, minutes: int = 60, *, causes: int = 5) -> FailureHistory:
        """How many attempts of a queue failed in each five minutes, of its most frequent causes and of all others.

        So many minutes back; they are kept for a day.
        """
        return admin.failures(self.databases, name_of(queue), minutes, causes)

    @question
    def histories(self, minutes: int = 30, names: Collection[str] | None = None) -> list[History]:
        """The figures of every queue minute by minute, or of those that are named: one question for all of them."""
        return admin.histories(self.databases, minutes, names)

    @question
    def attention(self, queues: Collection[str] | None = None) -> list[Attention]:
        """What needs a person's attention now, the most urgent first; with `queues` what is about these only."""
        scope = scope_of(queues, None)
        return admin.attention(self.databases, None if scope is None else scope.queues)

    @question
    def search(
        self, text: str, limit: int = 20, *, queues: Collection[str] | None = None, tenant: str | None = None
    ) -> list[SearchHit]:
        """Look for a text everywhere: a job's id, a part of the name of a queue, task, cron, load or worker, and whole
        keys, idempotency keys and tags. Exact hits come first.

        A key is found where it is halted, or where one of the newest thousand jobs of a shard has it, a tag there only:
        `jobs` looks further. `queues` and `tenant` are as those of `job`; with a tenant only its jobs are found.
        """
        return admin.search(self.databases, text, limit, scope_of(queues, tenant))

    @question
    def workers(self, *, jobs: int = 0) -> list[WorkerInfo]:
        """Every worker that has not been declared dead, with so many of the jobs that it runs."""
        return admin.workers(self.databases, jobs)

    @question
    def worker(self, worker_id: int | str) -> WorkerInfo:
        """One worker, with the jobs that it runs, those that run longest first; a hundred at most."""
        return admin.worker(self.databases, worker_id)

    @question
    def job(self, job_id: int | str, *, queues: Collection[str] | None = None, tenant: str | None = None) -> Job:
        """One job. With `queues` or a `tenant`, one that is not of them is as one that does not exist."""
        return admin.job(self.databases, job_id, scope=scope_of(queues, tenant))

    @question
    def children(
        self, job_id: int | str, *, queues: Collection[str] | None = None, tenant: str | None = None
    ) -> list[int]:
        """The jobs that wait for a job, the newest first, a thousand at most; those of some queues or a tenant only."""
        return admin.children(self.databases, job_id, scope_of(queues, tenant))

    @question
    def jobs(self, *, limit: int = 100, before: int | str | None = None, **filters: Unpack[Filters]) -> list[Job]:
        """Jobs, newest first. A partition is given by its name, or with its queue by number."""
        chosen = checked_filters(filters, "app.jobs", "limit", "before")
        return admin.jobs(self.databases, chosen, limit=limit, before=before)

    @question
    def job_page(self, *, limit: int = 100, before: int | str | None = None, **filters: Unpack[Filters]) -> JobPage:
        """The same as `jobs`, and where to go on: of a filter that matches little, it looks for about a second."""
        chosen = checked_filters(filters, "app.job_page", "limit", "before")
        return admin.job_page(self.databases, chosen, limit=limit, before=before)

    @question
    def explain(
        self, job_id: int | str, *, queues: Collection[str] | None = None, tenant: str | None = None
    ) -> Explanation:
        """Why a job is not running. `queues` and `tenant` are as those of `job`."""
        return admin.explain(self.databases, job_id, scope=scope_of(queues, tenant))

    @question
    def known_jobs(
        self, ids: Collection[int], *, queues: Collection[str] | None = None, tenant: str | None = None
    ) -> set[int]:
        """Those of these jobs that are of some queues or a tenant, as far as shards answer: what may be told of."""
        scope = scope_of(queues, tenant)
        return set(ids) if scope is None else admin.known_jobs(self.databases, ids, scope)

    @question
    def ended_jobs(self, ids: Collection[int]) -> set[int]:
        """Those of these jobs that have ended, for whoever waits for many; look at each, for one may be on its way."""
        return admin.ended_jobs(self.databases, ids)

    @question
    def dead_letters(
        self, seen: Mapping[int, admin.DeadLettersSeen], since: datetime | None = None
    ) -> admin.DeadLetters:
        """Dead letters since a look, for whoever watches."""
        return admin.dead_letters(self.databases, seen, since)

    @question
    def blocked_keys(
        self, queue: str | Queue, *, kind: Literal["halted", "held"] | None = None, limit: int = 1_000
    ) -> list[BlockedKey]:
        """The keys of a queue that wait for the retry of one of their jobs (held) or for a person (halted).

        Those that have waited longest first. Of very many held keys some are looked at: as many as are asked for.
        """
        return admin.blocked_keys(self.databases, name_of(queue), kind, limit)

    @question
    def hot_keys(self, queue: str | Queue, limit: int = 20) -> HotKeys:
        """The keys that most of a queue's ready jobs are of; of a long queue estimated, from some thousand jobs."""
        return admin.hot_keys(self.databases, name_of(queue), limit)

    @question
    def loads(self, limit: int = 100, *, names: Sequence[str] | None = None) -> list[Load]:
        """The newest loads, and how far their jobs are; or those of these names that there are."""
        return admin.loads(self.databases, limit, names)

    @change_in_steps
    def pause_load(self, name: str) -> None:
        """Start none of a load's waiting jobs until `resume_load`; what runs goes on, other jobs may pass them."""
        admin.pause_load(self.databases, name)

    @change_in_steps
    def resume_load(self, name: str) -> None:
        """Let a load's jobs come back, behind what is ready by now, in the order they had."""
        admin.resume_load(self.databases, name)

    @change_in_steps
    def cancel_load(self, name: str, *, preview: bool = False, reason: str | None = None) -> int:
        """End every job of a load that has not started, and ask the others to stop; how many ended. None starts now.

        The `reason` is kept as the jobs' `error`. With `preview` nothing is changed; how many it would end.
        """
        return admin.cancel_load(self.databases, name, reason, preview=preview)

    # Changing

    @overload
    def cancel(self, job_id: int | str, /, *, reason: str | None = None) -> State: ...
    @overload
    def cancel(self, /, *, preview: bool = False, reason: str | None = None, **filters: Unpack[Filters]) -> int: ...
    @change_in_steps
    def cancel(
        self,
        job_id: int | str | None = None,
        /,
        *,
        preview: bool = False,
        reason: str | None = None,
        **filters: Unpack[Filters],
    ) -> State | int:
        """Cancel one job, or by the filters of `jobs` all that have not ended; a running one is asked to stop.

        The `reason` is kept as the job's `error`.
        """
        chosen = checked_filters(filters)
        return admin.cancel(self.databases, job_id, chosen, preview=preview, reason=reason)

    @overload
    def retry(self, job_id: int | str, /, *, args: Mapping[str, Any] | None = None) -> State: ...
    @overload
    def retry(self, /, *, preview: bool = False, **filters: Unpack[Filters]) -> int: ...
    @change_in_steps
    def retry(
        self,
        job_id: int | str | None = None,
        /,
        *,
        args: Mapping[str, Any] | None = None,
        preview: bool = False,
        **filters: Unpack[Filters],
    ) -> State | int:
        """Run a dead letter again, or by the filters of `jobs` many; a job that waits for a time runs now.

        Jobs that were cancelled because of a dead letter wait for it again. With `args` these are the dead letter's
        arguments from now on, all of them, checked as `enqueue` checks them where this app declares the task; its key
        stays. What they were, who changed them and when is in `job(id).edits`.
        """
        chosen = checked_filters(filters)
        return admin.retry(self.databases, job_id, chosen, args=args, tasks=self.tasks, preview=preview)

    @change_in_steps
    def cancel_jobs(
        self,
        ids: Sequence[int | str],
        *,
        reason: str | None = None,
        queues: Collection[str] | None = None,
        tenant: str | None = None,
    ) -> list[JobAct]:
        """Cancel these jobs, a thousand at most, and tell of each what became of it; running ones are asked to stop.

        `queues` and `tenant` are as those of `job`.
        """
        return admin.cancel_jobs(self.databases, ids, scope_of(queues, tenant), reason)

    @change_in_steps
    def retry_jobs(
        self, ids: Sequence[int | str], *, queues: Collection[str] | None = None, tenant: str | None = None
    ) -> list[JobAct]:
        """Run these dead letters again, and now those that wait for a time, a thousand at most; what became of each."""
        return admin.retry_jobs(self.databases, ids, scope_of(queues, tenant))

    @change
    def reschedule(self, job_id: int | str, run_at: datetime) -> State:
        """Move a waiting job to another time; the state it is in then."""
        return admin.reschedule(self.databases, job_id, run_at)

    @change
    def pause(self, queue: str | Queue) -> None:
        """Give out none of a queue's jobs until `resume`; what runs goes on."""
        admin.pause(self.databases, self._declarations.entry(name_of(queue)).name)

    @change
    def resume(self, queue: str | Queue) -> None:
        """Give them out again."""
        admin.resume(self.databases, self._declarations.entry(name_of(queue)).name)

    @change_in_steps
    def purge(
        self,
        queue: str | Queue,
        *,
        preview: bool = False,
        reason: str | None = None,
        **filters: Unpack[FiltersInQueue],
    ) -> int:
        """End every waiting job of a queue as cancelled, or clear its dead letters, all or those of a cause; how many.

        The filters are those of `jobs`. The `reason` is kept as the `error` of those that were cancelled.
        """
        chosen = checked_filters({**filters, "queue": name_of(queue)}, "app.purge", "preview", "reason")
        self._declarations.entry(name_of(queue))
        return admin.purge(self.databases, chosen, preview=preview, reason=reason)

    @change_in_steps
    def delete_queue(self, queue: str | Queue, *, force: bool = False, preview: bool = False) -> int:
        """Delete a queue; how many of its jobs ended by that, or were asked to stop. Its name is free at once.

        Refused while it has jobs that have not ended, dead letters or a cron. With `force` what waits is cancelled,
        what runs is asked to stop, dead letters become history and crons are removed. What ended stays until it is
        pruned, under the name `NAME (deleted N)`; what a producer that has not heard of it still writes is cancelled.
        """
        name = name_of(queue)
        ended = admin.delete_queue(self.databases, name, force=force, preview=preview)
        if not preview:
            self._declarations.withdraw(name)
        return ended

    @change
    def limit(self, queue: str | Queue, **limits: Unpack[Limits]) -> None:
        """Change the limits of a queue that are given; every worker goes by them within a second.

        They are `run`, `limit`, `total_limit`, `rate`, `total_rate`, `per_key_rate`, `weights`, `max_length` and
        `max_wait`, as in `queue`; None takes one away. A raised limit starts what waits for it at once; a lowered one
        lets what runs end, and starts nothing until then.
        """
        name = name_of(queue)
        check_limits(name, limits)
        self._declarations.change_limits(self.databases, name, limits)

    @change_in_steps
    def resize(self, queue: str | Queue, *, partitions: int) -> Resize:
        """Give a queue another number of partitions while it is used; call again to see how far it is.

        Producers go by it at once, the order of each key is kept, and removed partitions are still worked off.
        """
        return self._declarations.follow(admin.resize(self.databases, name_of(queue), partitions))

    @question
    def resize_progress(self, queue: str | Queue) -> Resize:
        """How far the last resize or move of a queue is; it changes nothing."""
        return admin.resize_progress(self.databases, name_of(queue))

    @change_in_steps
    def move_partition(self, queue: str | Queue, partition: int | str, shard: int | str) -> Resize:
        """Let a partition of a queue live on another shard while it is used; call again to see how far it is.

        The partition is given by number or name, the shard by number or URL. What waits or runs is worked off where it
        is; the order of each key is kept.
        """
        return self._declarations.follow(admin.move_partition(self.databases, name_of(queue), partition, shard))

    @change
    def stop_worker(self, worker_id: int | str) -> None:
        """Ask a worker to end gently, as SIGTERM does: it hears that within a second, wherever it runs.

        It takes no more jobs, ends those that run within its grace, hands back the rest and leaves; its `app.work`
        returns. Whatever keeps that program running may start it again. A worker that polls a server hears it there.
        """
        admin.stop_worker(self.databases, worker_id)

    @change
    def release(self, queue: str | Queue, key: str | bytes | int) -> None:
        """Let a halted key go on; its dead letter stays where it is."""
        admin.release(self.databases, name_of(queue), key)

    # Who may come in, and who did what

    @change
    def create_token(
        self,
        name: str,
        *,
        role: Literal["read", "produce", "work", "admin"],
        queues: Sequence[str | Queue] | None = None,
        tenant: str | None = None,
        expires: float | timedelta | datetime | None = None,
        hides_args: bool = False,
    ) -> str:
        """Make a token by which a program comes in over HTTP, and give its secret, which is told this once only.

        `role` is what its bearer may do: "read", "produce", "work", or "admin", which is all. `queues` keeps it to
        some, `tenant` to the jobs of one (with "read" and "produce" only). It `expires` after so many seconds, or at a
        time. With `hides_args` its bearer sees no arguments or results of jobs.
        """
        new = admin.check_token(name, role, checked_queues(queues), tenant, expires, hides_args)
        return admin.create_token(self.databases, new)

    @change
    def revoke_token(self, name: str) -> None:
        """Let nobody in any more by a token, within a second; one that is revoked stays so.

        A shard that does not answer is an error after the others have heard it: what any of them knows counts for all.
        """
        admin.revoke_token(self.databases, name)

    @question
    def tokens(self) -> list[Token]:
        """Every token there ever was, the newest first, without their secrets."""
        return admin.tokens(self.databases)

    @question
    def audit(
        self,
        limit: int = 100,
        before: int | str | None = None,
        *,
        actor: str | None = None,
        act: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
    ) -> list[AuditEntry]:
        """Who did what: the newest entries over all shards, or those below the id `before`; by whom, of which act, on
        what, and since when.
        """
        return admin.audit(self.databases, limit=limit, before=before, actor=actor, act=act, target=target, since=since)

    # The app itself

    @property
    def database(self) -> Database:
        """The lead, the shard on which the catalogue is changed; with everything declared so far written down."""
        return self.databases.lead

    @property
    def databases(self) -> Databases:
        """Every database, with everything declared so far written down."""
        return self._access.databases

    @property
    def unchecked_databases(self) -> list[Database]:
        """The databases as they are, whatever their schema: for `doctor`, and `penstock sql`."""
        return self._connecting.unchecked()

    @property
    def url(self) -> str:
        """The first URL of the app, of whichever shard it is; reading it starts embedded servers, or creates them."""
        self._connecting.create()
        return self._connecting.urls[0]

    @property
    def plain_url(self) -> str:
        """`url` for programs and drivers that know neither `schema` nor libpq's `require_auth`, such as asyncpg."""
        return plain_url(self.url)

    @property
    def shared_duties(self) -> list[Callable[[], None]]:
        """What whoever keeps house for this app, a worker or a server, does for it now and then."""
        return [self._connecting.learn, self._declarations.write_rest]

    @property
    def is_embedded(self) -> bool:
        """Whether its databases are embedded servers."""
        return self._connecting.is_embedded

    def create_embedded(self) -> None:
        """Create embedded servers where they are meant and not there yet: for what brings in work or workers."""
        self._access.create_embedded()

    @property
    def lease_seconds(self) -> float:
        """How long a worker may be silent before it counts as dead."""
        return self._lease_seconds

    @property
    def request_timeout(self) -> float:
        """How many seconds a call has."""
        return self._connecting.request_timeout

    @property
    def retention(self) -> dict[str, float]:
        """How many days ended jobs are kept, by final state, and by `audit` what stands there."""
        return dict(self._retention)

    @property
    @question
    def shards(self) -> list[Shard]:
        """The databases of this app, whether they answer, and how much is on them."""
        return self._access.look_at_shards()

    @question
    def doctor(self) -> list[Check]:
        """Check what Penstock rests on, on every shard, in the order to mend it; what is wrong has an advice.

        A database that does not answer is among what is found.
        """
        return admin.doctor(self.unchecked_databases)

    @change_in_steps
    def add_shard(self, url: str) -> int:
        """Make an empty database a further shard; its number. What is placed from now on may be placed there.

        Running producers and workers find it by themselves. Partitions of queues that exist stay where they are until
        they are moved, or their queue is resized.
        """
        return self._access.add_shard(url)

    @change_in_steps
    def drain_shard(self, shard: int | str) -> Drain:
        """Take everything off a shard, given by its number or URL, while all of it is used; tells how far it is.

        Other shards take over its partitions at once. What is ready there is worked off, what waits is carried to the
        others. Workers go on with it by themselves, and so does each further call, which may be made at any time.
        """
        return admin.drain_shard(self.databases, shard)

    @question
    def drain_progress(self, shard: int | str) -> Drain:
        """How far the draining of a shard is; it changes nothing."""
        return admin.drain_progress(self.databases, shard)

    def migrate(self) -> list[str]:
        """Create or upgrade the schema, and write down what is declared; what was applied."""
        return self._access.migrate()

    @explain_wrong_calls
    def testing(self, *, inline: bool = False) -> AbstractContextManager[Testing]:
        """For tests: no database; jobs run at once (`inline=True`) or when the test calls `drain`."""
        return self._access.without_databases(inline=inline)

    def close(self) -> None:
        """Give back every connection; an embedded server stops when its last app is closed."""
        self.working.stop(may_hurry=False)
        self._access.close()
        self.sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Async twins of the reads

    async def astats(self, queue: str | Queue) -> Stats:
        """`stats` for coroutines."""
        return await call_in_thread(lambda: self.stats(queue), self.request_timeout)

    async def ahistory(self, queue: str | Queue, minutes: int = 60) -> History:
        """`history` for coroutines."""
        return await call_in_thread(lambda: self.history(queue, minutes), self.request_timeout)

    async def acauses(
        self, queue: str | Queue | None = None, *, limit: int = 100, queues: Collection[str] | None = None
    ) -> list[Cause]:
        """`causes` for coroutines."""
        return await call_in_thread(lambda: self.causes(queue, limit=limit, queues=queues), self.request_timeout)

    async def afailures(self, queue: str | Queue, minutes: int = 60, *, causes: int = 5) -> FailureHistory:
        """`failures` for coroutines."""
        return await call_in_thread(lambda: self.failures(queue, minutes, causes=causes), self.request_timeout)

    async def ahistories(self, minutes: int = 30, names: Collection[str] | None = None) -> list[History]:
        """`histories` for coroutines."""
        return await call_in_thread(lambda: self.histories(minutes, names), self.request_timeout)

    async def aloads(self, limit: int = 100, *, names: Sequence[str] | None = None) -> list[Load]:
        """`loads` for coroutines."""
        return await call_in_thread(lambda: self.loads(limit, names=names), self.request_timeout)

    async def ajob(self, job_id: int | str, *, queues: Collection[str] | None = None, tenant: str | None = None) -> Job:
        """`job` for coroutines."""
        return await call_in_thread(lambda: self.job(job_id, queues=queues, tenant=tenant), self.request_timeout)

    async def aretry(self, job_id: int | str, *, args: Mapping[str, Any] | None = None) -> State:
        """`retry` of one job, for coroutines."""
        return await call_in_thread(lambda: self.retry(job_id, args=args), self.request_timeout)

    async def ajobs(
        self, *, limit: int = 100, before: int | str | None = None, **filters: Unpack[Filters]
    ) -> list[Job]:
        """`jobs` for coroutines."""
        return await call_in_thread(lambda: self.jobs(limit=limit, before=before, **filters), self.request_timeout)

    async def ajob_page(
        self, *, limit: int = 100, before: int | str | None = None, **filters: Unpack[Filters]
    ) -> JobPage:
        """`job_page` for coroutines."""
        return await call_in_thread(lambda: self.job_page(limit=limit, before=before, **filters), self.request_timeout)

    async def aqueues(self, names: Collection[str] | None = None) -> list[Stats]:
        """`queues` for coroutines."""
        return await call_in_thread(lambda: self.queues(names), self.request_timeout)

    async def aattention(self, queues: Collection[str] | None = None) -> list[Attention]:
        """`attention` for coroutines."""
        return await call_in_thread(lambda: self.attention(queues), self.request_timeout)

    async def asearch(
        self, text: str, limit: int = 20, *, queues: Collection[str] | None = None, tenant: str | None = None
    ) -> list[SearchHit]:
        """`search` for coroutines."""
        return await call_in_thread(
            lambda: self.search(text, limit, queues=queues, tenant=tenant), self.request_timeout
        )

    async def aworkers(self, *, jobs: int = 0) -> list[WorkerInfo]:
        """`workers` for coroutines."""
        return await call_in_thread(lambda: self.workers(jobs=jobs), self.request_timeout)

    async def aworker(self, worker_id: int | str) -> WorkerInfo:
        """`worker` for coroutines."""
        return await call_in_thread(lambda: self.worker(worker_id), self.request_timeout)

    async def acrons(self) -> list[Cron]:
        """`crons` for coroutines."""
        return await call_in_thread(lambda: self.crons(), self.request_timeout)

    async def adue(self, queue: str | Queue | None = None) -> Due:
        """`due` for coroutines."""
        return await call_in_thread(lambda: self.due(queue), self.request_timeout)

    async def aexplain(
        self, job_id: int | str, *, queues: Collection[str] | None = None, tenant: str | None = None
    ) -> Explanation:
        """`explain` for coroutines."""
        return await call_in_thread(lambda: self.explain(job_id, queues=queues, tenant=tenant), self.request_timeout)

    async def ahot_keys(self, queue: str | Queue, limit: int = 20) -> HotKeys:
        """`hot_keys` for coroutines."""
        return await call_in_thread(lambda: self.hot_keys(queue, limit), self.request_timeout)

    async def ablocked_keys(
        self, queue: str | Queue, *, kind: Literal["halted", "held"] | None = None, limit: int = 1_000
    ) -> list[BlockedKey]:
        """`blocked_keys` for coroutines."""
        return await call_in_thread(lambda: self.blocked_keys(queue, kind=kind, limit=limit), self.request_timeout)

    @explain_wrong_calls
    async def aresult(self, job_id: int | str, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        """`result` for coroutines."""
        return await wait_for_result_async(self._access, job_id, timeout)
