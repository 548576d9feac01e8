"""The app: the one object a user holds. It declares queues, enqueues, works, and answers questions.

Nothing is connected until the first call that needs the database; what was declared until then is written by that
call. An app may be used from any number of threads.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from math import inf
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, Unpack, overload

from penstock import admin
from penstock.app.calls import Bounded, change, change_in_steps, question
from penstock.app.connecting import Connecting
from penstock.app.declarations import Declarations
from penstock.client.beside import beside
from penstock.client.options import Options
from penstock.client.pending import PendingJob, pending_rows
from penstock.client.producer import Producer
from penstock.client.task import Queue, Task
from penstock.client.testing import Testing
from penstock.clock import system
from penstock.deadline import Deadline, current_deadline
from penstock.errors import (
    InvalidInput,
    JobFailed,
    PartitionUnavailable,
    PenstockError,
    RequestTimeout,
    ResultTimeout,
)
from penstock.forking import renew_in_children
from penstock.model import (
    BlockedKey,
    Cron,
    Drain,
    Explanation,
    Job,
    Load,
    QueueDefinition,
    Resize,
    Shard,
    State,
    Stats,
    WorkerInfo,
)
from penstock.model.limits import checked_concurrency, checked_count, checked_name, checked_seconds
from penstock.model.queue import refuse_unknown_options
from penstock.model.state import FINAL
from penstock.policy.cron import Schedule
from penstock.shards.databases import Shards
from penstock.storage import Database
from penstock.storage.handler_transaction import is_async
from penstock.task.definition import TaskDefinition
from penstock.upkeep import SharedUpkeep, Upkeep
from penstock.version import __version__
from penstock.worker import Event, Hooks, ServedDatabase, Worked, Worker

__all__ = ["App"]

log = logging.getLogger("penstock")
# What a look at a job has, where whoever waits for its end gives less.
LOOK_SECONDS = 0.5

FILTERS = ("queue", "state", "task", "key", "load", "tag")
RETENTION_DAYS = {"succeeded": 7.0, "failed": 30.0, "cancelled": 7.0, "discarded": 7.0, "expired": 7.0}


class Limits(TypedDict, total=False):
    """What `app.limit` changes: the options of `app.queue` by those names."""

    limit: int | None
    rate: str | None
    per_key_rate: str | None
    weights: Mapping[str, float] | None
    max_length: int | None
    max_wait: float | None


class App:
    """One queue system: where its database is, which queues and tasks it has, and every question and act about them.

    Without a URL it is `$PENSTOCK_URL`, or else a PostgreSQL of its own under `./.penstock`, which starts when it is
    first needed and stops when the last app that uses it is closed or dead. `lease` is how many seconds a worker may be
    silent before it counts as dead, `request_timeout` how long an enqueue keeps trying, `retention` how many days
    ended jobs are kept, by final state; `imports` names modules that hold tasks. Settings of the database that could
    lose acknowledged jobs are refused, unless `accept_data_loss` says that this is meant. `pooled` says whether the
    database is behind a transaction pooler; without it that is found out. `schema` is where in the database all of it
    lies: with two of them, two environments live in one database.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        shards: Sequence[str] | None = None,
        embedded_shards: int | None = None,
        request_timeout: float = 30.0,
        lease: float = 15.0,
        retention: Mapping[str, float] | None = None,
        pool_size: int = 8,
        imports: Sequence[str] = (),
        accept_data_loss: bool = False,
        pooled: bool | None = None,
        schema: str = "penstock",
        **unavailable: object,
    ) -> None:
        for name in unavailable:
            raise InvalidInput(name, f"App has no option {name!r}")
        if isinstance(imports, str):
            raise InvalidInput("imports", "a list of module names is needed; write imports=['tasks']")
        if pooled is not None and not isinstance(pooled, bool):
            raise InvalidInput("pooled", "must be True, False or None")
        self._lease_seconds = checked_seconds("lease", lease)
        self._retention = _checked_retention(retention)
        self.imports = tuple(imports)
        self._connecting = Connecting(
            url,
            shards,
            embedded_shards,
            pool_size=checked_count("pool_size", pool_size, least=2, most=1_000),
            request_timeout=checked_seconds("request_timeout", request_timeout),
            lease_seconds=self._lease_seconds,
            accept_data_loss=accept_data_loss,
            pooled=pooled,
            schema=schema,
        )
        self._declarations = Declarations(self._connecting.shards, self._connecting.learn)
        self._producer: Producer | None = None
        self._hooks = Hooks()
        self._workers: list[Worker] = []
        self._testing: Testing | None = None
        self._lock = threading.Lock()
        renew_in_children(self, App._renew_after_fork)

    def _renew_after_fork(self) -> None:
        """In a forked child: no worker of this app runs here, and no thread of its producer."""
        self._lock = threading.Lock()
        self._workers = []
        self._producer = None

    # Declaring

    def queue(
        self,
        name: str,
        *,
        partitions: int = 1,
        order: Literal["key"] | None = None,
        per_key: int = 1,
        limit: int | None = None,
        rate: str | None = None,
        per_key_rate: str | None = None,
        fair_by: Literal["tenant"] | None = None,
        weights: Mapping[str, float] | None = None,
        on_retry: Literal["hold", "pass"] = "hold",
        on_dead: Literal["continue", "halt"] = "continue",
        max_length: int | None = None,
        max_wait: float | None = None,
        **unavailable: object,
    ) -> Queue:
        """Declare a queue. No I/O: the next call that needs the database writes it down.

        `order="key"` runs the jobs of a key one at a time, in the order they were enqueued; `per_key` allows more of a
        key at once, started in order. `limit` bounds how many run, `rate` ("100/s", or /m, /h, /d) how many start,
        `per_key_rate` the same for each key; `fair_by="tenant"` shares the starts between tenants by `weights`. A key
        waits for its job's retry, unless `on_retry="pass"`; where attempts run out it goes on, unless `on_dead="halt"`.
        `limit`, `rate`, `fair_by` and `max_length` hold for each partition; `max_wait` counts seconds.
        """
        refuse_unknown_options(checked_name("queue", name), unavailable)
        definition = QueueDefinition.of(
            name,
            partitions,
            order=order,
            per_key=per_key,
            limit=limit,
            rate=rate,
            per_key_rate=per_key_rate,
            fair_by=fair_by,
            weights=weights,
            on_retry=on_retry,
            on_dead=on_dead,
            max_length=max_length,
            max_wait=max_wait,
        )
        return self._declarations.declare(definition, Queue(definition, self))

    def register(self, task: TaskDefinition) -> None:
        """Take in a task; `queue.task` does it."""
        self._declarations.register(task)

    @property
    def tasks(self) -> dict[str, dict[str, TaskDefinition]]:
        """The tasks declared on this app, by queue and name."""
        return self._declarations.tasks

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
        if not isinstance(task, Task):
            raise InvalidInput("task", f"a task of this app is needed, not {type(task).__name__}")
        Schedule(expression, timezone)
        pending = task.job(**dict(args or {}))
        self._declarations.add_cron(
            admin.CronDefinition(
                checked_name("name", name), expression, timezone, task.queue, task.name, pending.args_json, pending.key
            )
        )

    @question
    def crons(self) -> list[Cron]:
        """Every cron entry."""
        return admin.read_crons(self.databases)

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

    def enqueue_many(
        self, jobs: Sequence[PendingJob], *, connection: Any = None, request_timeout: float | None = None
    ) -> list[int]:
        """Write jobs of any tasks and queues, all or nothing, on each shard by itself; their ids, in order."""
        timeout = None if request_timeout is None else checked_seconds("request_timeout", request_timeout)
        return self.send(_checked_pending(jobs), connection, timeout)

    async def aenqueue_many(
        self, jobs: Sequence[PendingJob], *, connection: Any = None, request_timeout: float | None = None
    ) -> list[int]:
        """`enqueue_many` for coroutines."""
        if connection is not None and is_async(connection):
            return await self.send_in_async(_checked_pending(jobs), connection)
        seconds = (
            self.request_timeout if request_timeout is None else checked_seconds("request_timeout", request_timeout)
        )
        return await beside(
            lambda: self.enqueue_many(jobs, connection=connection, request_timeout=request_timeout), seconds
        )

    def send(self, jobs: Sequence[PendingJob], connection: Any, timeout: float | None) -> list[int]:
        """Where every enqueue arrives."""
        if self._testing is not None:
            return self._testing.enqueue(jobs)
        is_bound = any(job.key is not None or job.options.idempotency_key is not None for job in jobs)
        with self._bounded(timeout):
            return self._producer_for(is_bound, len(jobs)).enqueue(jobs, connection, timeout)

    def send_rows(
        self, task: TaskDefinition, options: Options, args: list[bytes], keys: list[bytes | None] | None
    ) -> list[int]:
        """Where every enqueue of many rows arrives."""
        if self._testing is not None:
            return self._testing.enqueue(pending_rows(task, options, args, keys))
        with self._bounded(options.request_timeout):
            return self._producer_for(keys is not None, len(args)).enqueue_rows(task, options, args, keys)

    async def send_in_async(self, jobs: Sequence[PendingJob], connection: Any) -> list[int]:
        """The same, inside an asynchronous caller's transaction."""
        if self._testing is not None:
            return self._testing.enqueue(jobs)
        producer = await asyncio.to_thread(self._opened_producer)
        return await producer.enqueue_in_async(jobs, connection)

    # Working

    def work(
        self,
        queues: Sequence[str | Queue] | None = None,
        concurrency: int = 16,
        *,
        until_idle: bool = False,
        grace: float = 30.0,
    ) -> Worked:
        """Run jobs here until `stop`, SIGTERM or SIGINT, or until nothing is left to do; what came of it.

        Told to stop, it gives running handlers `grace` seconds. Raises `WorkerStuck` where more handlers than
        `concurrency` have passed their timeout and not returned, or one blocks the event loop for longer than `grace`.
        """
        checked_concurrency(concurrency)
        grace = checked_seconds("grace", grace)
        try:
            with _Signals() as signals:
                return self._work(queues, concurrency, until_idle, grace, signals)
        except _StoppedEarly:
            return Worked(0, 0, 0, 0)

    def _work(
        self, queues: Sequence[str | Queue] | None, concurrency: int, until_idle: bool, grace: float, signals: _Signals
    ) -> Worked:
        rescued: list[int] = []

        def note_rescued(jobs: int) -> None:
            rescued.append(jobs)
            self._hooks.tell(Event(name="rescued", jobs=jobs))

        def find_sites(known: Collection[int]) -> list[ServedDatabase]:
            return [
                ServedDatabase(database.shard, database, self._declarations.served(queues, database.shard))
                for database in self.databases
                if database.shard not in known
            ]

        worker = Worker(
            find_sites,
            concurrency=concurrency,
            lease_seconds=self._lease_seconds,
            grace_seconds=grace,
            version=__version__,
            hooks=self._hooks,
            sweepers=lambda database: Upkeep(database, self._retention, note_rescued, shared),
        )
        # Before anything that takes time: whoever stops the app now means this worker too.
        with self._lock:
            self._workers.append(worker)
        try:
            for module in self.imports:
                importlib.import_module(module)
            shared = SharedUpkeep(self.databases, [self._connecting.learn, self._declarations.write_rest])
            shared.start()
            try:
                signals.stop(worker)
                worker.run(until_idle=until_idle)
            finally:
                shared.stop()
        finally:
            with self._lock:
                self._workers.remove(worker)
        return worker.worked(sum(rescued))

    async def awork(
        self,
        queues: Sequence[str | Queue] | None = None,
        concurrency: int = 16,
        *,
        until_idle: bool = False,
        grace: float = 30.0,
    ) -> Worked:
        """`work` for coroutines."""
        return await asyncio.to_thread(self.work, queues, concurrency, until_idle=until_idle, grace=grace)

    def stop(self) -> None:
        """End every `work` of this app gently, from any thread."""
        with self._lock:
            workers = list(self._workers)
        for worker in workers:
            worker.stop()

    def on(self, event: str, function: Callable[[Event], Any]) -> None:
        """Call a function when a job started, succeeded, was retried, failed, or jobs were rescued."""
        self._hooks.add(event, function)

    def result(self, job_id: int | str, timeout: float | None = None) -> Any:
        """Wait for a job and give its result, or raise its error."""
        if self._testing is not None:
            return self._testing.result(int(job_id))
        if timeout is None:
            return self._await_result(job_id)
        # However short it is, the job is looked at once.
        with self._bounded(max(timeout, LOOK_SECONDS), is_change=False) as call:
            return self._await_result(job_id, call.deadline, max(timeout, 0.0))

    def _await_result(self, job_id: int | str, deadline: Deadline | None = None, seconds: float = inf) -> Any:
        until = system.monotonic() + seconds
        pause = 0.002
        is_seen = False
        while True:
            job = self._look_for_result(job_id, deadline, is_seen=is_seen)
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

    def _look_for_result(self, job_id: int | str, deadline: Deadline | None, *, is_seen: bool) -> Job:
        """A job; its shard is waited for where that is down, but no longer than this."""
        asked_at = system.monotonic()
        try:
            if deadline is not None:
                return admin.job(self.databases, job_id, waits=True)
            with self._bounded(is_change=False):
                return admin.job(self.databases, job_id, waits=True)
        except PartitionUnavailable as error:
            # It is given up up to half a second before, where the next try would come too late.
            if deadline is None or deadline.left() > 0.5:
                raise
            # A look that the end of the time cut short says nothing about the database.
            is_short = is_seen and system.monotonic() - asked_at < 0.5
            unanswered = None if is_short else str(error)
            raise ResultTimeout(int(job_id), deadline.seconds, unanswered=unanswered) from error

    # Asking

    @question
    def stats(self, queue: str | Queue) -> Stats:
        """A queue's figures, and those of each of its partitions."""
        return admin.stats(self.databases, self._declarations.fresh_entry(_name(queue)))

    @question
    def queues(self) -> list[Stats]:
        """Every queue the database knows, with its figures."""
        return admin.all_stats(self.databases)

    @question
    def workers(self) -> list[WorkerInfo]:
        """Every worker that has not been declared dead."""
        return admin.workers(self.databases)

    @question
    def job(self, job_id: int | str) -> Job:
        """One job."""
        return admin.job(self.databases, job_id)

    @question
    def jobs(
        self,
        *,
        queue: str | Queue | None = None,
        state: str | None = None,
        task: str | None = None,
        key: str | bytes | int | None = None,
        load: str | None = None,
        tag: str | None = None,
        limit: int = 100,
        before: int | str | None = None,
    ) -> list[Job]:
        """Jobs, newest first."""
        return admin.jobs(
            self.databases,
            queue=None if queue is None else _name(queue),
            state=state,
            task=task,
            key=key,
            load=load,
            tag=tag,
            limit=limit,
            before=before,
        )

    @question
    def explain(self, job_id: int | str) -> Explanation:
        """Why a job is not running."""
        return admin.explain(self.databases, job_id)

    @question
    def blocked_keys(self, queue: str | Queue) -> list[BlockedKey]:
        """The keys of a queue that wait for the retry of one of their jobs, or for a person; the oldest first."""
        return admin.blocked_keys(self.databases, _name(queue))

    @question
    def loads(self, limit: int = 100) -> list[Load]:
        """The newest loads, and how far their jobs are."""
        return admin.loads(self.databases, limit=limit)

    @change_in_steps
    def pause_load(self, name: str) -> None:
        """Start none of a load's waiting jobs until `resume_load`; what runs goes on, other jobs may pass them."""
        admin.pause_load(self.databases, name)

    @change_in_steps
    def resume_load(self, name: str) -> None:
        """Let a load's jobs come back, behind what is ready by now, in the order they had."""
        admin.resume_load(self.databases, name)

    @change_in_steps
    def cancel_load(self, name: str) -> int:
        """End every job of a load that has not started, and ask the others to stop; how many ended. None starts now."""
        return admin.cancel_load(self.databases, name)

    # Changing

    @overload
    def cancel(self, job_id: int | str, /) -> State: ...
    @overload
    def cancel(self, /, *, preview: bool = False, **filters: Any) -> int: ...
    @change_in_steps
    def cancel(self, job_id: int | str | None = None, /, *, preview: bool = False, **filters: Any) -> State | int:
        """Cancel one job, or by filter all that have not ended; a running one is asked to stop."""
        return admin.cancel(self.databases, job_id, preview=preview, **_filters(filters))

    @overload
    def retry(self, job_id: int | str, /) -> State: ...
    @overload
    def retry(self, /, *, preview: bool = False, **filters: Any) -> int: ...
    @change_in_steps
    def retry(self, job_id: int | str | None = None, /, *, preview: bool = False, **filters: Any) -> State | int:
        """Run a dead letter again, or by filter many; a job that waits for a time runs now."""
        return admin.retry(self.databases, job_id, preview=preview, **_filters(filters))

    @change
    def reschedule(self, job_id: int | str, run_at: datetime) -> State:
        """Move a waiting job to another time; the state it is in then."""
        return admin.reschedule(self.databases, job_id, run_at)

    @change
    def pause(self, queue: str | Queue) -> None:
        """Give out none of a queue's jobs until `resume`; what runs goes on."""
        admin.pause(self.databases, self._declarations.entry(_name(queue)).name)

    @change
    def resume(self, queue: str | Queue) -> None:
        """Give them out again."""
        admin.resume(self.databases, self._declarations.entry(_name(queue)).name)

    @change_in_steps
    def purge(self, queue: str | Queue, *, state: str | None = None, preview: bool = False) -> int:
        """End every waiting job of a queue as cancelled, or clear its dead letters; how many."""
        return admin.purge(self.databases, self._declarations.entry(_name(queue)).name, state=state, preview=preview)

    @change
    def limit(self, queue: str | Queue, **limits: Unpack[Limits]) -> None:
        """Change the limits of a queue that are given; every worker goes by them within a second.

        They are `limit`, `rate`, `per_key_rate`, `weights`, `max_length` and `max_wait`, as in `queue`; None takes one
        away. A raised limit starts what waits for it at once; a lowered one lets what runs end, and starts nothing
        until then.
        """
        self._declarations.change_limits(_name(queue), limits)

    @change_in_steps
    def resize(self, queue: str | Queue, *, partitions: int) -> Resize:
        """Give a queue another number of partitions while it is used; call again to see how far it is.

        Producers go by it at once, the order of each key is kept, and removed partitions are still worked off.
        """
        done = admin.resize(self.databases, _name(queue), partitions)
        self._declarations.fresh_entry(done.queue)
        return done

    @change_in_steps
    def move_partition(self, queue: str | Queue, partition: int | str, shard: int | str) -> Resize:
        """Let a partition of a queue live on another shard while it is used; call again to see how far it is.

        The partition is given by number or name, the shard by number or URL. What waits or runs is worked off where it
        is; the order of each key is kept.
        """
        done = admin.move_partition(self.databases, _name(queue), partition, shard)
        self._declarations.fresh_entry(done.queue)
        return done

    @change
    def release(self, queue: str | Queue, key: str | bytes | int) -> None:
        """Let a halted key go on; its dead letter stays where it is."""
        admin.release(self.databases, _name(queue), key)

    # The app itself

    @property
    def database(self) -> Database:
        """The first shard, with everything declared so far written down."""
        return self.databases.lead

    @property
    def databases(self) -> Shards:
        """Every database, with everything declared so far written down."""
        if self._testing is not None:
            raise PenstockError("app.testing() keeps jobs in memory, without a database: ask the object it gave you")
        shards = self._connecting.shards()
        self._declarations.write_declarations()
        call = current_deadline()
        if call is not None:
            # What was declared before is not what the call is for.
            call.may_have_written = False
        return shards

    @property
    def unchecked_databases(self) -> list[Database]:
        """The databases as they are, whatever their schema: for `penstock doctor`."""
        return self._connecting.unchecked()

    @property
    def url(self) -> str:
        """The URL of the first shard; reading it starts embedded servers."""
        return self._connecting.urls[0]

    @property
    def is_embedded(self) -> bool:
        """Whether its databases are embedded servers in the folder it was made in."""
        return self._connecting.is_embedded

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
        """How many days ended jobs are kept, by final state."""
        return dict(self._retention)

    @property
    @question
    def shards(self) -> list[Shard]:
        """The databases of this app, whether they answer, and how much is on them."""
        databases = self._connecting.unchecked()
        # One that is asked for its health is not waited for.
        if not any(admin.answers(database) for database in databases):
            return [admin.silent_shard(database) for database in databases]
        return admin.shards(self._connecting.shards())

    @change_in_steps
    def add_shard(self, url: str) -> int:
        """Make an empty database a further shard; its number. What is placed from now on may be placed there.

        Running producers and workers find it by themselves. Partitions of queues that exist stay where they are until
        they are moved, or their queue is resized.
        """
        self._declarations.write_declarations()
        return self._connecting.add(url)

    @change_in_steps
    def drain_shard(self, shard: int | str) -> Drain:
        """Take everything off a shard, given by its number or URL, while all of it is used; tells how far it is.

        Other shards take over its partitions at once. What is ready there is worked off, what waits is carried to the
        others. Workers go on with it by themselves, and so does each further call, which may be made at any time.
        """
        return admin.drain_shard(self.databases, shard)

    def migrate(self) -> list[str]:
        """Create or upgrade the schema, and write down what is declared; what was applied."""
        applied = self._connecting.migrate()
        self._declarations.write_declarations()
        return applied

    @contextmanager
    def testing(self, *, inline: bool = False) -> Iterator[Testing]:
        """For tests: no database; jobs run at once (`inline=True`) or when the test calls `drain`."""
        before, self._testing = self._testing, Testing(inline=inline, is_owned=self._declarations.is_owned)
        try:
            yield self._testing
        finally:
            self._testing = before

    def close(self) -> None:
        """Give back every connection; an embedded server stops when its last app is closed."""
        with self._lock:
            workers = list(self._workers)
        for worker in workers:
            worker.stop(may_hurry=False)
        self._connecting.close()
        self._producer = None
        self._declarations.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Async twins of the reads

    async def astats(self, queue: str | Queue) -> Stats:
        """`stats` for coroutines."""
        return await beside(lambda: self.stats(queue), self.request_timeout)

    async def aloads(self, limit: int = 100) -> list[Load]:
        """`loads` for coroutines."""
        return await beside(lambda: self.loads(limit), self.request_timeout)

    async def ajob(self, job_id: int | str) -> Job:
        """`job` for coroutines."""
        return await beside(lambda: self.job(job_id), self.request_timeout)

    async def ajobs(self, **filters: Any) -> list[Job]:
        """`jobs` for coroutines."""
        return await beside(lambda: self.jobs(**filters), self.request_timeout)

    async def aqueues(self) -> list[Stats]:
        """`queues` for coroutines."""
        return await beside(lambda: self.queues(), self.request_timeout)

    async def aworkers(self) -> list[WorkerInfo]:
        """`workers` for coroutines."""
        return await beside(lambda: self.workers(), self.request_timeout)

    async def acrons(self) -> list[Cron]:
        """`crons` for coroutines."""
        return await beside(lambda: self.crons(), self.request_timeout)

    async def aexplain(self, job_id: int | str) -> Explanation:
        """`explain` for coroutines."""
        return await beside(lambda: self.explain(job_id), self.request_timeout)

    async def ablocked_keys(self, queue: str | Queue) -> list[BlockedKey]:
        """`blocked_keys` for coroutines."""
        return await beside(lambda: self.blocked_keys(queue), self.request_timeout)

    async def aresult(self, job_id: int | str, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        """`result` for coroutines."""
        if timeout is None:
            return await asyncio.to_thread(self.result, job_id)
        return await beside(lambda: self.result(job_id, timeout), max(timeout, LOOK_SECONDS))

    def _bounded(self, seconds: float | None = None, *, is_change: bool = True, renews: bool = False) -> Bounded:
        """A call begins: from here on its time counts. Servers of our own are started before it does."""
        given = self.request_timeout if seconds is None else seconds
        if self._testing is None:
            self._connecting.start(given)
        return Bounded(given, is_change=is_change, renews=renews)

    def _producer_for(self, is_bound: bool, count: int) -> Producer:
        try:
            return self._opened_producer()
        except PartitionUnavailable as error:
            error.written = [None] * count
            if is_bound:
                raise
            refused = RequestTimeout(f"{error}; nothing was written", outcome="not written")
            refused.written = error.written
            raise refused from error

    def _opened_producer(self) -> Producer:
        shards = self.databases
        producer = self._producer
        if producer is None:
            producer = self._producer = Producer(shards, self._declarations.entry, self._declarations.fresh_entry)
        return producer


class _StoppedEarly(BaseException):
    """A signal came before there was a worker to stop, while the database was waited for, say."""


class _Signals:
    """SIGTERM and SIGINT end a worker gently while the block lasts; only the main thread may be asked for them.

    A signal may come while the main thread holds the very lock that stopping needs: another thread stops the worker.
    """

    def __init__(self) -> None:
        self._is_main = threading.current_thread() is threading.main_thread()
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._worker: Worker | None = None
        self._before: dict[int, Any] = {}
        self._stopper = threading.Thread(target=self._stop_when_asked, name="penstock-signals", daemon=True)

    def stop(self, worker: Worker) -> None:
        """From now on this is what a signal stops."""
        self._worker = worker

    def __enter__(self) -> Self:
        if self._is_main:
            self._stopper.start()
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
            renew_in_children(self, _Signals._renew_after_fork)
        return self

    def _renew_after_fork(self) -> None:
        """In a forked child: there is no worker to stop, and nobody who would hear it; signals mean what they did."""
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, handler)
        self._before = {}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._is_main:
            self._asked.put(False)
            self._stopper.join()

    def _note(self, *_: object) -> None:
        if self._worker is None:
            raise _StoppedEarly
        self._asked.put(True)

    def _stop_when_asked(self) -> None:
        while self._asked.get():
            if self._worker is not None:
                self._worker.stop()


def _name(queue: str | Queue) -> str:
    return queue.name if isinstance(queue, Queue) else checked_name("queue", queue)


def _filters(filters: dict[str, Any]) -> dict[str, Any]:
    for name in filters:
        if name not in FILTERS:
            raise InvalidInput(name, f"jobs cannot be chosen by {name!r}; the filters are {', '.join(FILTERS)}")
    if isinstance(filters.get("queue"), Queue):
        filters["queue"] = filters["queue"].name
    return filters


def _checked_pending(jobs: object) -> list[PendingJob]:
    if isinstance(jobs, (str, bytes)) or not isinstance(jobs, Iterable):
        raise InvalidInput("jobs", f"a list of task.job(...) is needed, not {type(jobs).__name__}")
    checked = list(jobs)
    for job in checked:
        if not isinstance(job, PendingJob):
            raise InvalidInput("jobs", f"task.job(...) is needed, not {type(job).__name__}")
    return checked


def _checked_retention(given: Mapping[str, float] | None) -> dict[str, float]:
    retention = dict(RETENTION_DAYS)
    for outcome, days in (given or {}).items():
        if outcome not in RETENTION_DAYS:
            raise InvalidInput("retention", f"{outcome!r} is no final state; give {', '.join(RETENTION_DAYS)}")
        retention[outcome] = checked_seconds("retention", days)
    return retention
