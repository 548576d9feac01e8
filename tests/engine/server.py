"""A third user of the engine, small: a server that owns the partitions of a queue and acts for workers far away.

Each of those is a row of `worker` and holds its leases itself: any server renews it and settles for it, and one that
falls silent is rescued as every worker is. The server only chooses for them. A worker far away calls `poll`: what it
was given has ended so and so, and it wants so much more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.clock import system, ticks
from penstock.engine.conversation import Conversation, Holder, Settlement
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.leased_jobs import read_leased
from penstock.engine.link import Link, wait_as_long_as_a_request
from penstock.engine.owned_source import OwnedSource
from penstock.engine.source import NOTHING
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.upkeep.sweep import unblock_next
from penstock.storage.work import workers
from penstock.storage.work.exchange import held_leases
from penstock.storage.work.leases import Lease
from penstock.storage.work.settle import End, EndKind, Succeeded

__all__ = ["LEASE_SECONDS", "FarWorker", "Server", "WorkerGone"]

LEASE_SECONDS = 60.0


class WorkerGone(Exception):
    """The worker was declared dead: what it held is not its own any more, and it has to register anew."""


@dataclass
class FarWorker:
    """What a server knows of one: its conversation, what it holds, and by job under which lease."""

    conversation: Conversation
    leases: dict[int, Lease] = field(default_factory=dict)
    jobs: dict[int, Lease] = field(default_factory=dict)
    # Jobs whose ends were not written, since they were not held any more.
    lost: list[int] = field(default_factory=list)

    @property
    def number(self) -> int:
        return self.conversation.holder.worker

    def take(self, lease: Lease) -> None:
        self.leases[lease.id] = lease
        lease.unsettled = len(lease.positions)
        self.jobs |= {lease.range * 1024 + position: lease for position in lease.positions}

    def let_go(self, job: int) -> None:
        lease = self.jobs.pop(job)
        lease.unsettled -= 1
        if not lease.unsettled:
            del self.leases[lease.id]


class Server:
    """Used by one thread, but for the heartbeat of its own row."""

    def __init__(self, database: Database, queue: QueueEntry, tasks: list[str]) -> None:
        self.database = database
        self._link = Link(database, "server", wait_as_long_as_a_request(database))
        registered_at = ticks()
        self.owner = _register(database, "server", [(queue.id, task) for task in tasks])
        self._heartbeat = Heartbeat(
            database, LEASE_SECONDS, lambda connection: workers.renew(connection, self.owner), registered_at
        )
        self._source = OwnedSource(self.owner, {queue.id: tasks})
        self._workers: list[FarWorker] = []

    def join(self) -> FarWorker:
        """Enter a worker far away. It runs what the server's own row knows, and has no share of the partitions."""
        number = _register(self.database, "far", [])
        return self._act_for(Holder(number, workers.full_name("far", number)))

    def adopt(self, other: FarWorker) -> FarWorker:
        """Act for a worker that another server has acted for: what it holds is in the database."""
        worker = self._act_for(other.conversation.holder)
        for lease in self._link.ask(lambda connection: held_leases(connection, worker.number)):
            worker.take(lease)
        return worker

    def poll(self, worker: FarWorker, ends: Mapping[int, str], want: int) -> dict[int, tuple[bytes, int]]:
        """Settle what ended, and give it more: by job, its key and attempt, in the order in which they start."""
        for each in self._workers:
            if each is not worker and each.conversation.is_in_doubt:
                self._exchange(each, {}, 0)
        if self._link.ask(lambda connection: workers.renew(connection, worker.number)) is None:
            raise WorkerGone
        self._link.ask(lambda connection: self._source.look(connection, want, system.monotonic()))
        return self._exchange(worker, ends, want)

    def end_elsewhere(self, worker: FarWorker, jobs: list[int]) -> None:
        """Believe that these have succeeded, as after a failover to a server that has not heard of it."""
        ends = [(worker.jobs[job].partition_id, job, "succeeded") for job in jobs]
        self._source.note_ends(ends, system.monotonic())
        for job in jobs:
            worker.let_go(job)

    def close(self) -> None:
        """Give up the partitions; what the workers hold stays theirs."""
        self._link.ask(self._source.leave)
        self._link.ask(lambda connection: workers.remove(connection, self.owner))
        self._heartbeat.stop()
        self._link.close()

    def _act_for(self, holder: Holder) -> FarWorker:
        # All on one link: whatever became of a turn, it was sent by this one thread.
        worker = FarWorker(Conversation(self._link, holder, on_doubt=self._source.forget))
        self._workers.append(worker)
        return worker

    def _exchange(self, worker: FarWorker, ends: Mapping[int, str], want: int) -> dict[int, tuple[bytes, int]]:
        now = system.monotonic()
        held = {job: end for job, end in ends.items() if job in worker.jobs}
        self._source.note_ends([(worker.jobs[job].partition_id, job, end) for job, end in held.items()], now)
        settlement = _settlement(worker, held)
        wish = NOTHING if worker.conversation.is_in_doubt or want == 0 else self._source.wish(want, 0, 0, now)
        turn = worker.conversation.exchange(settlement, wish, worker.leases.values())
        worker.lost += [job for job in held if (worker.jobs[job].id, job % 1024) in turn.not_held]
        for job in held:
            worker.let_go(job)
        if turn.children:
            self._link.ask(lambda connection: unblock_next(connection, turn.children))
        if surplus := self._source.surplus:
            self._link.ask(lambda connection: self._source.give_up(connection, surplus))
        leases = self._source.learn(wish, turn, now)
        rows = read_leased(worker.conversation, self._source, leases)
        for lease in leases:
            worker.take(lease)
        order = wish.order()
        return {job: (rows[job][2], worker.jobs[job].attempt) for job in sorted(rows, key=lambda j: order.get(j, -1))}


def _register(database: Database, name: str, tasks: list[tuple[int, str]]) -> int:
    def act(connection: Connection) -> int:
        return workers.register(
            connection, name=name, host="", pid=0, version="", concurrency=0, lease_seconds=LEASE_SECONDS, tasks=tasks
        )

    return database.run(act)


def _settlement(worker: FarWorker, ends: Mapping[int, str]) -> Settlement:
    leases = worker.jobs
    succeeded: dict[int, Succeeded] = {}
    for job, end in ends.items():
        if end == "succeeded":
            lease = leases[job]
            group = succeeded.setdefault(lease.id, Succeeded(lease.id, lease.token, lease.range))
            group.positions.append(job % 1024)
            group.ages.append(0)
            group.runs.append(0)
    return Settlement(
        list(succeeded.values()),
        [
            End(leases[job].id, leases[job].token, job % 1024, job // 1024, _kind(end), "on purpose", age=0, run=0)
            for job, end in ends.items()
            if end != "succeeded"
        ],
        attempts=lambda: {(leases[job].id, job % 1024): (job, leases[job].attempt) for job in ends},
    )


def _kind(end: str) -> EndKind:
    if end not in ("retry", "failed"):
        raise ValueError(end)
    return end  # type: ignore[return-value]
