"""What a server does on one database for remote workers: turns in threads, and rounds for all polls that are open.

A round renews the workers of all open polls by one statement, hears which of their jobs are to stop or were taken away,
and takes away jobs that have run for too long. Threads and connections are so many however many polls are open.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.clock import system, ticks
from penstock.errors import PenstockError
from penstock.server.remote.ends import CheckedEnd, SettledEnds, settle
from penstock.server.remote.owned_lane import OwnedLane
from penstock.server.remote.plain_lane import PlainLane
from penstock.server.remote.polled_times import count_runs
from penstock.server.remote.registered_worker import QueueSet, RegisteredWorker
from penstock.server.remote.server_row import ServerRow
from penstock.server.remote.timeouts import take_overdue_away
from penstock.server.remote.turns import (
    Order,
    RemoteGone,
    Superseded,
    Taken,
    explain_failure,
    give,
    read_given,
    read_tasks,
)
from penstock.server.remote.waiting_polls import WaitingPoll, WaitingPolls
from penstock.server.remote.wake_calls import WakeCalls
from penstock.server.threads import hand_in
from penstock.shards.databases import Databases
from penstock.storage import Connection, Database
from penstock.storage.connection.error_meaning import DatabaseError
from penstock.storage.work import remote_workers as storage
from penstock.storage.work import workers
from penstock.storage.work.remote_workers import Greeting, HeldLease, PollRecord
from penstock.upkeep.queue_times import QueueTimes
from penstock.version import __version__

__all__ = ["OpenPoll", "RemoteShard", "RoundNews"]

T = TypeVar("T")
log = logging.getLogger("penstock")

# Turns that are under way at once on one database, beside those that an owner makes.
TURN_THREADS = 4
# How often open polls are renewed and told of news; more often where a lease is short.
ROUND_SECONDS = 1.0
# The same where notifications do not arrive: it is looked so often then, too, whether anything is ready.
DEAF_SECONDS = 0.25
FORGET_SECONDS = 60.0


class RoundNews(NamedTuple):
    """What a round found out about the worker of an open poll; `sent_at`: when its renewal was sent."""

    sent_at: int
    is_alive: bool
    asked: frozenset[int]
    is_asked_to_stop: bool
    has_lost: bool


class OpenPoll(WaitingPoll, Protocol):
    """A poll that is being answered."""

    def note_round(self, shard: int, news: RoundNews) -> None:
        """Hear what a round found out."""

    def lease_seconds(self) -> float:
        """For how long its worker may be silent."""


@dataclass(slots=True)
class _Round:
    alive: set[int] = field(default_factory=set)
    news: Mapping[int, tuple[bool, bool]] = field(default_factory=dict)
    asked: Mapping[int, set[int]] = field(default_factory=dict)
    ready: Sequence[int] = ()


class RemoteShard:
    """Used on the event loop. `times`: where waits and run times are counted; `is_closing`: whether the server is about
    to stop.
    """

    def __init__(
        self,
        databases: Databases,
        database: Database,
        lease_seconds: float,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        is_closing: Callable[[], bool],
        times: QueueTimes,
    ) -> None:
        self._databases = databases
        self._times = times
        self.database = database
        self.number = database.shard
        self.row = ServerRow(database, lease_seconds)
        self._loop = asyncio.get_running_loop()
        self._is_closing = is_closing
        self._plain = PlainLane(database, lambda: self.row.withheld)
        self._owned = OwnedLane(database, self.row, self._plain, is_closing)
        self._turn_threads = ThreadPoolExecutor(TURN_THREADS, f"penstock-remote-{self.number}")
        self._owner_thread = ThreadPoolExecutor(1, f"penstock-owner-{self.number}")
        self._round_thread = ThreadPoolExecutor(1, f"penstock-rounds-{self.number}")
        self.waiting = WaitingPolls(self.number, spawn)
        self._wake_calls = WakeCalls(database, self._hear)
        # By the row of its worker, the polls that are being answered.
        self._open: dict[int, dict[OpenPoll, None]] = {}
        # The queues that this server is woken for, and whether somebody changes that.
        self._sleeps_on: set[int] = set()
        self._sleeper = 0
        self._changing_sleep = asyncio.Lock()
        self._limited: frozenset[int] = frozenset()
        self._limits_at = 0.0
        self._looked_at = 0.0
        self._forgot_at = system.monotonic()
        self._is_in_crews = False
        self._rounds = self._loop.create_task(self._go_round())

    async def run(self, act: Callable[[Connection], T]) -> T:
        """Do what may be done twice. An only database is waited for as long as a request may take."""
        return await self._in(self._turn_threads, lambda: self._databases.ask(self.database, act))

    async def greet(self, remote: int, *, is_renewal: bool = False) -> tuple[Greeting | None, int]:
        """How a worker stands here; and when that was asked."""
        sent_at = ticks()
        return await self.run(lambda connection: storage.greet(connection, remote, is_renewal=is_renewal)), sent_at

    async def enroll(self, remote: int, registered: RegisteredWorker) -> None:
        """Enter a worker here, unless it lives here already."""
        await self.run(lambda connection: enroll(connection, remote, registered))

    async def settle(self, ends: Sequence[CheckedEnd], greeting: Greeting, registered: RegisteredWorker) -> SettledEnds:
        """What is to be settled of ends here."""
        limited = await self._read_limited() if ends else self._limited

        def task_of(leases: Sequence[HeldLease]) -> Mapping[int, str]:
            return self.database.run(lambda connection: read_tasks(connection, leases))

        return await self._in(self._turn_threads, lambda: settle(ends, greeting, registered, task_of, limited))

    async def take(self, order: Order) -> Taken:
        """Do a turn; `Superseded`, `RemoteGone` or `Unsure`."""
        taken = await self._take(order)
        # Here, where nobody else counts at the same time.
        count_runs(self._times, order, taken.waits)
        return taken

    async def _take(self, order: Order) -> Taken:
        if order.registered.owned:
            self._is_in_crews = True
            return await self._in(self._owner_thread, lambda: self._owned.take(order))
        if self.row.must_rest:
            order = replace(order, want=0)
        return await self._in(self._turn_threads, lambda: self._plain.take(order))

    async def take_over(
        self, remote: int, number: int | None, request: int, instead: Sequence[int] | None = None
    ) -> bool:
        """Act for a worker from here on; whether nobody else does by now."""
        return await self.run(lambda c: storage.take_over_poll(c, remote, number, request, instead))

    async def read_record(self, remote: int, registered: RegisteredWorker) -> Taken:
        """What came of a worker's last poll here."""

        def read(connection: Connection) -> Taken:
            record = storage.read_poll(connection, remote)
            return give(self.number, registered, record, read_given(connection, record))

        return await self.run(read)

    async def end_poll(
        self, remote: int, number: int, request: int, without: Mapping[int, int], registered: RegisteredWorker
    ) -> Taken:
        """Let a poll end with what it has; what that is, without the jobs."""

        def end(connection: Connection) -> PollRecord:
            storage.end_poll(connection, remote, number, request, without)
            return storage.read_poll(connection, remote)

        try:
            record = await self.run(end)
        except DatabaseError as error:
            failure = explain_failure(error)
            if isinstance(failure, (Superseded, RemoteGone)):
                raise failure from error
            raise
        return give(self.number, registered, record, {})

    async def hand_back(self, remote: int, number: int, request: int) -> None:
        """Let others have what a poll was given that nobody was told of."""
        await self.run(lambda connection: storage.hand_back_poll(connection, remote, number, request))

    def open(self, worker: int, poll: OpenPoll) -> None:
        """Renew this worker as long as the poll is open."""
        self._open.setdefault(worker, {})[poll] = None

    def close_poll(self, worker: int, poll: OpenPoll) -> None:
        """The poll is answered."""
        polls = self._open.get(worker)
        if polls is not None:
            polls.pop(poll, None)
            if not polls:
                del self._open[worker]

    async def wait(self, poll: OpenPoll, seen: int) -> None:
        """Let a poll wait; `seen` is what was the number of news before it was last tried."""
        queues = {queue for queue, _ in poll.queues}
        self._wake_calls.listen(queues)
        is_new = not self._sleeps_on.issuperset(queues)
        if is_new:
            await self._sleep_on(queues)
        self.waiting.enter(poll, seen - 1 if is_new else seen)

    def news_of(self, queues: QueueSet) -> int:
        return self.waiting.news_of(queues)

    def wake_up(self) -> None:
        """Have every open poll look at what has changed."""
        self.waiting.wake()

    async def close(self) -> None:
        """Leave the crews, and give everything back."""
        self._rounds.cancel()
        await self._in(self._owner_thread, self._owned.close)
        await self._in(self._turn_threads, self._leave)
        for executor in (self._turn_threads, self._owner_thread, self._round_thread):
            executor.shutdown(wait=False)

    def _leave(self) -> None:
        self._wake_calls.stop()
        self.row.close()

    async def _in(self, executor: ThreadPoolExecutor, act: Callable[[], T]) -> T:
        return await asyncio.shield(hand_in(executor, act))

    def _hear(self, queue: int | None) -> None:
        """In the listener's thread."""
        self._owned.note_news()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.waiting.wake, queue)

    async def _sleep_on(self, also: set[int]) -> None:
        """Be woken for the queues that polls wait for, and these, and no others."""
        async with self._changing_sleep:
            queues = self.waiting.queues | also
            number = await self._in(self._turn_threads, self.row.number)
            if (number, queues) == (self._sleeper, self._sleeps_on):
                return
            # Who comes meanwhile, and is not among them, changes it again.
            self._sleeper, self._sleeps_on = number, queues
            try:
                await self.run(lambda connection: storage.sleep_on(connection, number, sorted(queues)))
            except BaseException:
                self._sleeps_on = set()
                raise

    async def _read_limited(self) -> frozenset[int]:
        now = system.monotonic()
        if now - self._limits_at > ROUND_SECONDS:
            self._limits_at = now
            self._limited = frozenset(await self.run(workers.limited_queues))
        return self._limited

    async def _go_round(self) -> None:
        while True:
            shortest = min((poll.lease_seconds() for polls in self._open.values() for poll in polls), default=60.0)
            pause = ROUND_SECONDS if self._wake_calls.hears else DEAF_SECONDS
            await asyncio.sleep(min(pause, shortest / 4))
            try:
                await self._do_round()
            except PenstockError as error:
                log.debug("a round for remote workers failed: %s", error)
            except DatabaseError:
                log.warning("a round for remote workers failed", exc_info=True)
            except Exception:
                log.exception("a round for remote workers failed")

    async def _do_round(self) -> None:
        sent_at, now = ticks(), system.monotonic()
        opened = {worker: list(polls) for worker, polls in self._open.items()}
        waited_for = sorted(self.waiting.queues)
        is_time = now - self._looked_at >= (ROUND_SECONDS if self._wake_calls.hears else DEAF_SECONDS) * 0.9
        if is_time:
            self._looked_at = now
            await self._in(self._round_thread, lambda: take_overdue_away(self.database))
        if opened or waited_for:
            workers_, queues = sorted(opened), waited_for if is_time else []
            found = await self._in(self._round_thread, lambda: self._read_round(workers_, queues))
            for worker, polls in opened.items():
                stops, has_lost = found.news.get(worker, (False, False))
                asked = frozenset(found.asked.get(worker, ()))
                for poll in polls:
                    poll.note_round(self.number, RoundNews(sent_at, worker in found.alive, asked, stops, has_lost))
            for queue in found.ready:
                self.waiting.wake(queue)
        if is_time and not self._is_closing():
            await self._rest(now)

    async def _rest(self, now: float) -> None:
        """What nobody waits for: crews and wake calls that nobody needs any more, workers that are gone."""
        if self._is_in_crews:
            self._is_in_crews = await self._in(self._owner_thread, self._owned.leave_unasked)
        if self._sleeps_on:
            await self._sleep_on(set())
        if now - self._forgot_at > FORGET_SECONDS:
            self._forgot_at = now
            await self.run(storage.forget_remote_workers)

    def _read_round(self, workers_: Sequence[int], queues: Sequence[int]) -> _Round:
        def read(connection: Connection) -> _Round:
            found = _Round()
            if workers_:
                found.alive = storage.renew_open(connection, workers_)
                found.news = storage.news_of_open(connection, workers_)
                found.asked = storage.asks_of_open(connection, workers_)
            if queues:
                found.ready = storage.queues_with_ready(connection, queues)
            return found

        return self.database.run(read, timeout=5.0)


def enroll(connection: Connection, remote: int, registered: RegisteredWorker) -> None:
    """Enter a worker on a database, unless it lives there already."""
    tasks = [(queue.id, task) for queue in registered.queues for task in queue.tasks]
    timeouts = {
        (queue.id, name): float("inf") if task.timeout is None else task.timeout
        for queue in registered.queues
        for name, task in queue.tasks.items()
    }
    worker = workers.register(
        connection,
        name=registered.name,
        # The same on every shard.
        instance=str(uuid.uuid5(uuid.NAMESPACE_OID, str(remote))),
        host="",
        pid=0,
        version=__version__,
        concurrency=registered.concurrency,
        lease_seconds=registered.lease,
        tasks=tasks,
        timeouts=timeouts,
    )
    if not storage.enroll(connection, remote, worker, registered.as_json(), registered.shortest_timeout):
        workers.remove(connection, worker)
