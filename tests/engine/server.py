"""A third user of the engine, small: a server that owns the partitions of a queue and acts for workers far away.

Each of those is a row of `worker` and holds its leases itself: any server renews it and settles for it, and one that
falls silent is rescued as every worker is. The server only chooses for them. A worker far away calls `poll`: what it
was given has ended so and so, and it wants so much more.

It keeps to the duties of a user that `penstock.engine` lists. Two ask nothing of it, as its one queue is owned: an
owner reads by itself what is paused, and nobody but the owner waits for room under the limit, so that nothing is
*withheld* and nothing is *freed*. Upkeep is left to others, and so is what is between the server and its workers: a
call whose answer is lost there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.clock import system, ticks
from penstock.engine.conversation import Conversation, Holder, Settlement
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.leased_jobs import read_leased
from penstock.engine.link import Link, Patience
from penstock.engine.owned_source import OwnedSource
from penstock.engine.source import NOTHING, Wish
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.upkeep.sweep import unblock_next
from penstock.storage.work import workers
from penstock.storage.work.exchange import held_leases
from penstock.storage.work.leases import Lease
from penstock.storage.work.settle import End, EndKind, Succeeded

__all__ = ["LEASE_SECONDS", "FarWorker", "Given", "Server", "WorkerGone"]

log = logging.getLogger("penstock")

LEASE_SECONDS = 60.0


class WorkerGone(Exception):
    """The worker was declared dead: what it held is not its own any more, and it has to register anew."""


class Given(NamedTuple):
    """A job as a worker far away was given it, and names it at its end, to whichever server.

    Lease and token are the fence: a job that came to the worker a second time is another one.
    """

    job: int
    attempt: int
    lease: int
    token: int
    key: bytes

    @property
    def pair(self) -> tuple[int, int]:
        """Lease and position: how the engine names it."""
        return self.lease, self.job % 1024


@dataclass(frozen=True)
class Told:
    """What a turn settles for a worker, kept until the turn is answered: one in doubt is told the same again."""

    ends: Mapping[Given, str] = field(default_factory=dict)
    settlement: Settlement = field(default_factory=Settlement)


NOTHING_TOLD = Told()


@dataclass
class FarWorker:
    """What a server knows of one: its conversation, what it holds, and what it has yet to hear of."""

    conversation: Conversation
    leases: dict[int, Lease] = field(default_factory=dict)
    # By lease and position, the jobs that it holds and that have not ended.
    held: dict[tuple[int, int], Lease] = field(default_factory=dict)
    told: Told = NOTHING_TOLD
    # New leases whose jobs are yet to be read, and the order in which chosen ones start.
    unread: list[Lease] = field(default_factory=list)
    order: dict[int, int] = field(default_factory=dict)
    # Jobs that are read and yet to be given to it.
    waiting: list[Given] = field(default_factory=list)
    # Jobs whose ends were not written, since they were not held any more.
    lost: set[int] = field(default_factory=set)
    # Until when its row certainly lives: counted from when the last renewal was sent.
    valid_until: int = 0

    @property
    def number(self) -> int:
        return self.conversation.holder.worker

    @property
    def jobs(self) -> list[int]:
        """The jobs that it holds."""
        return [lease.range * 1024 + position for (_, position), lease in self.held.items()]

    @property
    def is_unanswered(self) -> bool:
        """Whether it is not known what became of its last turn."""
        return self.conversation.is_in_doubt or self.told is not NOTHING_TOLD

    def holds(self, given: Given) -> bool:
        lease = self.held.get(given.pair)
        return lease is not None and lease.token == given.token

    def take(self, lease: Lease) -> None:
        """Note a lease that it has not heard of."""
        if lease.id in self.leases:
            # An older copy of the database has given the number again: what was held under it is not any more.
            self._drop(self.leases[lease.id])
        self.leases[lease.id] = lease
        lease.unsettled = len(lease.positions)
        self.held |= {(lease.id, position): lease for position in lease.positions}
        self.unread.append(lease)

    def let_go(self, pair: tuple[int, int]) -> None:
        """Note that a job has ended, or goes back."""
        lease = self.held.pop(pair)
        lease.unsettled -= 1
        if not lease.unsettled:
            del self.leases[lease.id]
            if lease.is_in_doubt:
                # What the server has of this lease, and this worker has settled elsewhere, is found now.
                self.conversation.doubt()

    def doubt(self) -> None:
        """Another server may answer: have it found out what it says that this worker holds."""
        for lease in self.leases.values():
            lease.is_in_doubt = True
        self.conversation.doubt()

    def _drop(self, lease: Lease) -> None:
        self.held = {pair: each for pair, each in self.held.items() if each is not lease}
        self.unread = [each for each in self.unread if each is not lease]
        self.waiting = [given for given in self.waiting if self.holds(given)]


class Server:
    """Used by one thread, but for the heartbeat of its own row."""

    def __init__(self, database: Database, queue: QueueEntry, tasks: list[str], patience: Patience) -> None:
        self.database = database
        self._queue = queue
        self._tasks = tasks
        # All on one link: whatever became of a turn, it was sent by this one thread.
        self._link = Link(database, "server", patience)
        self._workers: dict[int, FarWorker] = {}
        self._register()

    def join(self) -> FarWorker:
        """Enter a worker far away. It runs what the server's own row knows, and has no share of the partitions."""
        number, _ = _register(self.database, "far", [])
        worker = self._build(Holder(number, workers.full_name("far", number)))
        self._workers[number] = worker
        return worker

    def adopt(self, holder: Holder, running: Collection[Given]) -> FarWorker:
        """Act for a worker that another server has acted for: what it holds is in the database.

        It says what of that it runs; of the rest it never heard. From now on no turn of the other server's is committed
        for it any more: its first act here is another number for its turns.
        """
        worker = self._build(holder)
        for lease in worker.conversation.ask(lambda connection: held_leases(connection, holder.worker)):
            worker.take(lease)
        self._read(worker)
        worker.waiting = [given for given in worker.waiting if given not in running]
        self._workers[holder.worker] = worker
        return worker

    def poll(self, worker: FarWorker, ends: Mapping[Given, str], want: int) -> list[Given]:
        """Settle what ended, and give it more, in the order in which they start.

        Where this raises, nothing is lost: the worker says the same again, and hears of what it has got by then.
        """
        self._heed_heartbeat()
        # Before anything is chosen, whomever it is for: nobody knows what a turn in doubt may have leased.
        for each in list(self._workers.values()):
            if each.is_unanswered:
                self._exchange(each)
        self._renew(worker)
        self._read(worker)
        mismatch = self._heartbeat.mismatch
        if mismatch is None:
            worker.conversation.ask(lambda connection: self._source.look(connection, want, system.monotonic()))
        self._settle_and_take(worker, ends, want if mismatch is None else 0)
        if mismatch is not None:
            # What runs may end. Everything else is for newer programs.
            worker.conversation.ask(self._source.leave)
            raise mismatch
        self._read(worker)
        if ticks() >= worker.valid_until:
            # Others may have declared it dead. What it holds waits for its next poll, which renews its row first.
            return []
        given, worker.waiting = worker.waiting, []
        return given

    def end_elsewhere(self, worker: FarWorker, ended: Collection[Given]) -> None:
        """Believe that these have succeeded, as after a failover to a server that has not heard of it."""
        self._note_ends(worker, dict.fromkeys(ended, "succeeded"), system.monotonic())
        for given in ended:
            worker.let_go(given.pair)

    def close(self) -> None:
        """Give up the partitions; what the workers hold stays theirs."""
        self._heartbeat.stop()
        try:
            # Whoever adopts a worker has to find all that it holds.
            for each in self._workers.values():
                if each.is_unanswered:
                    self._exchange(each)
            self._link.ask(self._source.leave)
            self._link.ask(lambda connection: workers.remove(connection, self.owner))
        finally:
            self._link.close()

    def _register(self) -> None:
        """Become an owner: with a row of its own, a heartbeat, and nothing read yet."""
        registered_at = ticks()
        owner, server = _register(self.database, "server", [(self._queue.id, task) for task in self._tasks])
        self.owner = owner
        self._source = OwnedSource(owner, {self._queue.id: self._tasks})
        self._link.share(owner)
        self._heartbeat = Heartbeat(
            self.database, LEASE_SECONDS, lambda connection: workers.renew(connection, owner), registered_at, server
        )

    def _build(self, holder: Holder) -> FarWorker:
        return FarWorker(Conversation(self._link, holder, on_doubt=self._forget))

    def _forget(self) -> None:
        """Whatever the source has read may be wrong; whichever it is, as the server may have registered anew."""
        self._source.forget()

    def _heed_heartbeat(self) -> None:
        """Register anew where the server was declared dead; where another server answers, doubt what is held."""
        if self._heartbeat.is_declared_dead:
            log.warning("the server was silent for too long: its partitions went to others, its workers stay")
            self._register()
        elif not self._heartbeat.has_server_changed():
            return
        # A copy of the database that never heard of the server's row is another server, too.
        for each in self._workers.values():
            each.doubt()

    def _renew(self, worker: FarWorker) -> None:
        sent_at = ticks()
        if worker.conversation.ask(lambda connection: workers.renew(connection, worker.number)) is None:
            self._workers.pop(worker.number, None)
            raise WorkerGone
        worker.valid_until = sent_at + int(LEASE_SECONDS * 1e9)

    def _settle_and_take(self, worker: FarWorker, ends: Mapping[Given, str], want: int) -> None:
        """Do a turn for a worker. What waits for it and is more than it wants goes back."""
        self._note_lost(worker, [given for given in ends if not worker.holds(given)])
        told = {given: end for given, end in ends.items() if worker.holds(given)}
        told |= dict.fromkeys(worker.waiting[want:], "release")
        worker.waiting = worker.waiting[:want]
        if told:
            worker.told = Told(told, _settlement(worker, told))
        now = system.monotonic()
        self._note_ends(worker, told, now)
        wanted = self._link.at_most(want - len(worker.waiting))
        wish = self._source.wish(wanted, 0, 0, now) if wanted > 0 else NOTHING
        if told or wish:
            self._exchange(worker, wish)

    def _exchange(self, worker: FarWorker, wish: Wish = NOTHING) -> None:
        """Do a turn, or find out what became of the last one: with the same ends as before."""
        told = worker.told
        turn = worker.conversation.exchange(told.settlement, wish, worker.leases.values())
        # All of it is kept in mind before anything else is asked. That may fail, and a lease that nobody knows of is
        # held for as long as its holder lives.
        worker.told = NOTHING_TOLD
        leases = self._source.learn(wish, turn, system.monotonic())
        not_held = set(turn.not_held)
        worker.lost |= {given.job for given, end in told.ends.items() if end != "release" and given.pair in not_held}
        for given in told.ends:
            worker.let_go(given.pair)
        for lease in leases:
            worker.take(lease)
        worker.order |= wish.order()
        if turn.children:
            worker.conversation.ask(lambda connection: unblock_next(connection, turn.children))
        if surplus := self._source.surplus:
            worker.conversation.ask(lambda connection: self._source.give_up(connection, surplus))

    def _read(self, worker: FarWorker) -> None:
        """Read the jobs of new leases, to be given to the worker."""
        jobs = [(lease.range * 1024 + position, lease) for lease in worker.unread for position in lease.positions]
        if not jobs:
            return
        rows = read_leased(worker.conversation, self._source, worker.unread)
        for job, lease in sorted(jobs, key=lambda each: worker.order.get(each[0], -1)):
            if job in rows:
                worker.waiting.append(Given(job, lease.attempt, lease.id, lease.token, rows[job][2]))
            else:
                worker.let_go((lease.id, job % 1024))  # It was set aside.
        worker.unread, worker.order = [], {}

    def _note_lost(self, worker: FarWorker, not_held: list[Given]) -> None:
        """Of ends about jobs that are not held: what was settled before, by an earlier call, is not lost."""
        if not_held:
            attempts = {given.pair: (given.job, given.attempt) for given in not_held}
            lost = set(worker.conversation.find_not_held(attempts, attempts))
            worker.lost |= {given.job for given in not_held if given.pair in lost}

    def _note_ends(self, worker: FarWorker, ends: Mapping[Given, str], now: float) -> None:
        self._source.note_ends(
            [(worker.held[given.pair].partition_id, given.job, end) for given, end in ends.items()], now
        )


def _register(database: Database, name: str, tasks: list[tuple[int, str]]) -> tuple[int, str | None]:
    """Enter a worker; its number, and which server answered."""

    def act(connection: Connection) -> tuple[int, str | None]:
        number = workers.register(
            connection, name=name, host="", pid=0, version="", concurrency=0, lease_seconds=LEASE_SECONDS, tasks=tasks
        )
        return number, workers.begin(connection, number)

    return database.run(act)


def _settlement(worker: FarWorker, ends: Mapping[Given, str]) -> Settlement:
    succeeded: dict[int, Succeeded] = {}
    others: list[End] = []
    for given, end in ends.items():
        lease, position = worker.held[given.pair], given.job % 1024
        if end == "succeeded":
            group = succeeded.setdefault(lease.id, Succeeded(lease.id, lease.token, lease.range))
            group.positions.append(position)
            group.ages.append(0)
            group.runs.append(0)
        elif end == "release":
            others.append(End(lease.id, lease.token, position, lease.range, "release"))
        else:
            others.append(End(lease.id, lease.token, position, lease.range, _kind(end), "on purpose", age=0, run=0))
    attempts = {given.pair: (given.job, given.attempt) for given, end in ends.items() if end != "release"}
    return Settlement(list(succeeded.values()), others, attempts=lambda: attempts)


def _kind(end: str) -> EndKind:
    if end not in ("retry", "failed"):
        raise ValueError(end)
    return end  # type: ignore[return-value]
