"""Remote workers, as the HTTP API calls for them: register, poll, renew, leave.

All that is known of them is in the databases. So any server answers for any of them, and one that ends takes nothing
with it but the partitions that it owns, which others take over.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from penstock.clock import system
from penstock.errors import InvalidInput, PartitionUnavailable, WorkerGone
from penstock.model.checks import MOST_CONCURRENCY, checked_count, checked_job_id, checked_progress
from penstock.server.remote.ends import check_ends
from penstock.server.remote.job_names import read_worker
from penstock.server.remote.messages import Poll, PollAnswer, Registration, RenewAnswer
from penstock.server.remote.poll_call import CheckedPoll, PollCall
from penstock.server.remote.registered_worker import RegisteredWorker, read_registered
from penstock.server.remote.remote_shard import RemoteShard, enroll
from penstock.server.threads import hand_in
from penstock.shards.databases import Databases
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import announce_task, find_queue
from penstock.storage.work import remote_workers as storage
from penstock.storage.work import workers
from penstock.upkeep import SharedUpkeep, Upkeep

__all__ = ["LONGEST_WAIT_SECONDS", "RemoteWorkers"]

T = TypeVar("T")
log = logging.getLogger("penstock")

LONGEST_WAIT_SECONDS = 30.0
# Registrations and the like that are under way at once.
CALL_THREADS = 4
# So long what is under way has for its end when the server stops.
GRACE_SECONDS = 10.0


class RemoteWorkers:
    """One a server process, used on its event loop.

    `lease_seconds` is how long a worker may be silent that does not say. With `retention` it also prunes, as a worker's
    upkeep does; `also` are what the app does beside that, every few seconds.
    """

    def __init__(
        self,
        databases: Databases,
        *,
        lease_seconds: float = 15.0,
        retention: Mapping[str, float] | None = None,
        also: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._databases = databases
        self._lease_seconds = lease_seconds
        self._retention = retention
        self._also = also
        self._threads = ThreadPoolExecutor(CALL_THREADS, "penstock-remote")
        self._shards: dict[int, RemoteShard] = {}
        self._upkeep: dict[int, Upkeep] = {}
        self._shared_upkeep: SharedUpkeep | None = None
        self._polls: set[PollCall] = set()
        # By worker, the last poll whose client had gone when it was given something.
        self._untold: dict[int, PollCall] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closing = False

    async def register(self, registration: Registration) -> str:
        """Enter a worker; what it is called from here on."""
        names = RegisteredWorker.names(registration)
        registered = await self._in_thread(lambda: self._enter(registration, names))
        self._serve()
        return registered

    def lease_of(self, registration: Registration) -> float:
        """For how many seconds a worker may be silent: the app's lease, where it does not say."""
        return self._lease_seconds if registration.lease is None else registration.lease

    async def poll(self, worker: str, poll: Poll, within: Collection[str] | None = None) -> PollAnswer:
        """Settle what ended and give out more; where there is nothing, wait for it for a while.

        To who may touch the jobs of some queues only, a worker that gets jobs of others is one that there is not.
        """
        checked = CheckedPoll(
            checked_count("number", poll.number),
            check_ends(poll.ends),
            checked_count("want", poll.want, least=0, most=MOST_CONCURRENCY),
            _checked_wait(poll.wait),
        )
        self._serve()
        remote = _read_worker(worker)
        call = PollCall(self._shards, remote, checked, within)
        if self._is_closing:
            call.stop()
        self._polls.add(call)
        task = self._spawn(self._answer(remote, call))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            call.abandon()
            task.add_done_callback(functools.partial(self._note_untold, remote, call))
            raise

    async def renew(
        self, worker: str, progress: Mapping[str, Any], within: Collection[str] | None = None
    ) -> RenewAnswer:
        """Hear that a worker lives, and how far its jobs have come; what it has to know."""
        reports = _checked_reports(progress)
        self._serve()
        remote = _read_worker(worker)

        def renew(connection: Connection) -> storage.Greeting | None:
            greeting = storage.greet(connection, remote, is_renewal=True)
            if greeting is not None and not read_registered(greeting.registration).is_within(within):
                # Raised, so that it was not renewed either.
                raise WorkerGone(_gone(worker))
            if greeting is not None:
                storage.note_delivered(connection, remote)
                if reports:
                    workers.report_progress(connection, greeting.worker, reports)
            return greeting

        greetings = [greeting for greeting in await self._ask_all(remote, renew) if greeting is not None]
        if not greetings:
            raise WorkerGone(_gone(worker))
        stops = any(greeting.is_asked_to_stop for greeting in greetings)
        must_rest = any(shard.row.must_rest for shard in self._shards.values())
        return RenewAnswer(
            cancelled=[str(job) for greeting in greetings for job in sorted(greeting.asked)],
            lost=[str(job) for greeting in greetings for job in sorted(greeting.taken_away)],
            stop=self._is_closing or stops or must_rest,
        )

    async def leave(self, worker: str, within: Collection[str] | None = None) -> None:
        """Let a worker leave: what it holds is handed back. Nothing, where there is no such worker."""
        remote = read_worker(worker)
        if remote is None:
            return
        self._serve()

        def leave(connection: Connection) -> None:
            if within is not None:
                greeting = storage.greet(connection, remote, is_renewal=True)
                if greeting is not None and not read_registered(greeting.registration).is_within(within):
                    # Raised, so that it was not renewed either.
                    raise WorkerGone(_gone(worker))
            storage.leave_remote(connection, remote)

        with suppress(WorkerGone):
            await self._ask_all(remote, leave)

    def begin_stop(self) -> None:
        """The server is about to stop: polls are answered at once, and nothing more is given out."""
        self._is_closing = True
        for call in list(self._polls):
            call.stop()

    async def close(self) -> None:
        """Stop: what is under way ends, partitions are given up, and what nobody was told of is handed back."""
        self.begin_stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE_SECONDS)
        for call in self._untold.values():
            try:
                await call.hand_back()
            except PartitionUnavailable as error:
                log.warning("what a poll was given could not be handed back: %s", error)
        await asyncio.gather(*(shard.close() for shard in self._shards.values()))
        await self._in_thread(self._stop_upkeep)
        self._threads.shutdown(wait=False)

    # How it goes.

    def _serve(self) -> None:
        """Serve the databases there are, with their upkeep: a retry has to be promoted, and who is silent rescued."""
        for database in self._databases:
            if database.shard not in self._shards and not self._is_closing:
                upkeep = self._start_upkeep(database)
                self._shards[database.shard] = RemoteShard(
                    self._databases, database, self._lease_seconds, self._spawn, lambda: self._is_closing, upkeep.times
                )

    def _start_upkeep(self, database: Database) -> Upkeep:
        if self._shared_upkeep is None:
            self._shared_upkeep = SharedUpkeep(self._databases, self._also)
            self._shared_upkeep.start()
        upkeep = Upkeep(database, self._retention, shared=self._shared_upkeep)
        self._upkeep[database.shard] = upkeep
        upkeep.start()
        return upkeep

    def _stop_upkeep(self) -> None:
        for upkeep in self._upkeep.values():
            upkeep.stop()
        if self._shared_upkeep is not None:
            self._shared_upkeep.stop()

    async def _answer(self, remote: int, call: PollCall) -> PollAnswer:
        try:
            return await call.answer()
        finally:
            self._polls.discard(call)
            self._untold.pop(remote, None)

    def _note_untold(self, remote: int, call: PollCall, task: asyncio.Task[PollAnswer]) -> None:
        if not task.cancelled() and task.exception() is None and task.result().jobs:
            self._untold[remote] = call

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _in_thread(self, act: Callable[[], T]) -> T:
        return await hand_in(self._threads, act)

    async def _ask_all(self, remote: int, act: Callable[[Connection], T]) -> list[T]:
        """Ask every database; raises where none answers."""
        found = await asyncio.gather(*(shard.run(act) for shard in self._shards.values()), return_exceptions=True)
        answers: list[T] = []
        missing: list[PartitionUnavailable] = []
        for each in found:
            if isinstance(each, PartitionUnavailable):
                missing.append(each)
            elif isinstance(each, BaseException):
                raise each
            else:
                answers.append(each)
        if not answers and missing:
            raise missing[0]
        return answers

    def _enter(self, registration: Registration, names: Sequence[str]) -> str:
        entries = {
            name: self._databases.read(lambda connection: find_queue(connection, name))  # noqa: B023
            for name in names
        }
        registered = RegisteredWorker.checked(registration, entries, self._lease_seconds)
        if registered.owned:
            for told in self._databases.each(lambda c: storage.crew_tasks(c, [queue for queue, _ in registered.owned])):
                _refuse_few(registered, told)
        remote = system.random_token() >> 10

        def enter(connection: Connection) -> None:
            for queue in registered.queues:
                for name, task in queue.tasks.items():
                    announce_task(connection, queue.id, name, task.max_attempts)
            enroll(connection, remote, registered)

        entered = self._databases.each(enter)
        if not entered.given:
            entered.all()
        return str(remote)


def _refuse_few(registered: RegisteredWorker, crew: Sequence[tuple[int, str, str]]) -> None:
    """Raise where a worker would get nothing of a queue, as it lacks a task that others know who choose from it."""
    for queue, task, who in crew:
        known = registered.by_queue[queue]
        if task not in known.tasks:
            raise InvalidInput(
                f"queues.{known.name}",
                f"it lacks task {task!r}, which {who} knows: keys would wait for it here, so nothing of this queue "
                "would be given to this worker; announce all its tasks, or leave the queue out",
            )


def _checked_wait(wait: float) -> float:
    if not math.isfinite(wait) or not 0 <= wait <= LONGEST_WAIT_SECONDS:
        raise InvalidInput("wait", f"{wait:g} s is out of bounds; give 0 to {LONGEST_WAIT_SECONDS:g} seconds")
    return wait


def _checked_reports(progress: Mapping[str, Any]) -> list[tuple[int, float | None, str | None]]:
    reports = []
    for job, given in progress.items():
        field = f"progress.{job}"
        value, note = given, None
        if isinstance(given, Mapping):
            if unknown := set(given) - {"value", "note"}:
                raise InvalidInput(f"{field}.{min(unknown)}", "there is no such field; give value and note")
            value, note = given.get("value"), given.get("note")
        try:
            reports.append((checked_job_id(job, field), *checked_progress(value, note)))
        except InvalidInput as error:
            raise InvalidInput(field, error.problem) from None
    return reports


def _read_worker(worker: str) -> int:
    remote = read_worker(worker)
    if remote is None:
        raise WorkerGone(_gone(worker))
    return remote


def _gone(worker: str) -> str:
    return f"worker {worker} is not known: it was silent for longer than its lease, or has left; register anew"
