"""A seat: what a slot has on one shard. It is a worker there, with a row, a pulse that renews it, and a conversation.

Declared dead, it settles nothing: what it held runs elsewhere. What ended at a seat whose shard is away is kept, and
settled when that is back, if the seat is still alive then.

It settles everything it holds before it gets anything else. So after a lost answer whatever is held was leased to it
unheard of.

Of a batch only the first jobs count as started at once, the rest as claimed ahead, until they have run for a second:
after a crash before that they run again a few at a time, so that one row that kills its executor is found and does not
use up the attempts of thousands of others. Of a plain queue that is one, and they run again one by one; a limit counts
what has started, so there it is all of them.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.clock import system, ticks
from penstock.engine.conversation import Conversation, Holder, Settlement
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.leased_jobs import read_leased
from penstock.engine.link import Link, wait_as_long_as_a_request
from penstock.engine.owned_source import OwnedSource
from penstock.engine.plain_source import PlainSource
from penstock.engine.source import NOTHING, Source, Wish
from penstock.spark.claiming.job_batch import record_batch
from penstock.spark.claiming.known_tasks import Tasks
from penstock.spark.processing.batch_run import Ended, Handler, HeldBatch, run_batch
from penstock.storage import slots, workers
from penstock.storage.claim import Lease
from penstock.storage.database import Connection, Database
from penstock.storage.exchange import held_leases
from penstock.storage.owner import read_partitions
from penstock.storage.settle import note_started
from penstock.storage.sweep import unblock
from penstock.upkeep import Upkeep
from penstock.version import __version__

__all__ = ["Plan", "Seat"]

T = TypeVar("T")
log = logging.getLogger("penstock")

# How often it is looked which tasks the queue has, and whether it has a limit.
LOOK_SECONDS = 1.0
# What has run for so long counts as started: a crash is charged to it.
STARTED_NANOSECONDS = 1_000_000_000
# So many jobs of an owner's choice count as started at once: it chooses for as many slots.
STARTED_AT_ONCE = 16
# How long a slot with other seats waits for one whose shard does not answer.
PATIENCE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What every slot of a run is told; it travels to the executors."""

    # By shard: where it is, and the number of the driver's own row there.
    urls: Mapping[int, str] = field(repr=False)
    drivers: Mapping[int, int]
    # What the names of the run's workers begin with, and how many slots it has.
    run: str
    slots: int
    queue_id: int
    is_owned: bool
    handler: Handler
    tasks: Tasks
    # None: by how long batches take.
    batch_size: int | None
    lease_seconds: float
    until_idle: bool
    budget_seconds: float

    def shards_of(self, slot: int) -> list[int]:
        """Where a slot has its seats: everywhere, each beginning with another shard. Where partitions have an owner the
        shards are shared out: of two slots one might own all of both.
        """
        shards = sorted(self.drivers)
        if not self.is_owned:
            start = slot % len(shards)
            return shards[start:] + shards[:start]
        places = range(slot % self.slots, max(self.slots, len(shards)), self.slots)
        return list(dict.fromkeys(shards[place % len(shards)] for place in places))


class Seat:
    """Used by its slot's one thread, but for the pulse."""

    def __init__(self, plan: Plan, shard: int, *, is_alone: bool) -> None:
        self._plan = plan
        self._shard = shard
        self._database = Database(
            plan.urls[shard],
            pool_size=2,
            request_timeout=30.0 if is_alone else PATIENCE_SECONDS,
            lease_seconds=plan.lease_seconds,
            shard=shard,
            is_alone=len(plan.urls) == 1,
        )
        # What is announced, and so what is new, is another on each shard.
        self.tasks = deepcopy(plan.tasks)
        self._link = Link(self._database, "conversation", wait_as_long_as_a_request(self._database))
        # Only asked for whole rounds in this thread, never started.
        self._upkeep = Upkeep(self._database, None)
        self._looked_at = 0.0
        self._is_gated = False
        self._has_driver = True
        self._partitions: list[int] = []
        # As how manieth each job starts that was chosen last.
        self._order: dict[int, int] = {}
        # What was claimed and has not run, and what has run and is not settled yet.
        self._held: list[Lease] = []
        self._ended = Ended()
        # When a batch began, and its leases that were claimed ahead; the pulse notes that those have started, too.
        self._running: tuple[int, list[Lease]] | None = None
        self.counts: Counter[str] = Counter()

    @property
    def is_away(self) -> bool:
        """Whether its shard is known to be down."""
        return self._database.breaker.is_down

    @property
    def reason_to_end(self) -> str | None:
        """Why it takes no more: it was declared dead, its driver is gone, or it is too old for the database by now.

        Of that last the driver hears when it begins the next round.
        """
        if self._pulse.is_lost:
            return "dead"
        return None if self._has_driver and self._pulse.mismatch is None else "stopped"

    def take(self) -> None:
        """Become a worker on the shard."""
        plan = self._plan
        host, pid = socket.gethostname(), os.getpid()
        registered_at = ticks()

        def register(connection: Connection) -> tuple[int, str | None]:
            self.tasks.look(connection, plan.queue_id)
            worker = workers.register(
                connection,
                name=f"{plan.run}{host}:{pid}",
                host=host,
                pid=pid,
                version=__version__,
                concurrency=1,
                lease_seconds=plan.lease_seconds,
                tasks=[(plan.queue_id, task) for task in self.tasks],
            )
            return worker, workers.begin(connection, worker)

        self._worker, server = self._database.run(register)
        name = workers.full_name(f"{plan.run}{host}:{pid}", self._worker)
        self._source: Source = (
            OwnedSource(self._worker, {plan.queue_id: self.tasks})
            if plan.is_owned
            else PlainSource(self._worker, [plan.queue_id])
        )
        self._conversation = Conversation(self._link, Holder(self._worker, name), on_doubt=self._source.forget)
        self._pulse = Heartbeat(self._database, plan.lease_seconds, self._renew, registered_at, server)

    def turn(self, wanted: int, *, is_last: bool) -> list[Lease]:
        """Settle what ended and claim what comes next, unless it is the last turn; the leases.

        A last turn asks for nothing; it holds what an answer that was lost had given it.
        """
        if self._held:
            return self._held
        ended = self._ended
        wish = NOTHING
        if self._pulse.has_server_changed():
            self._conversation.doubt()
        is_last = is_last or self._conversation.is_in_doubt
        if not is_last:
            self._ask(lambda connection: self._look(connection, wanted))
        now = system.monotonic()
        if ended.batch is not None:
            rows = zip(ended.batch.leases, ended.batch.positions, ended.verdicts, strict=True)
            self._source.note_ends(
                (
                    (lease.partition_id, lease.range * 1024 + position, "succeeded" if verdict is None else verdict.end)
                    for lease, position, verdict in rows
                ),
                now,
            )
        if not is_last:
            wish = self._wish(wanted, now)
        if not ended and not wish and not self._conversation.is_in_doubt:
            return []
        turn = self._conversation.exchange(self._settlement(ended), wish)
        self._ended = Ended()
        self.counts += ended.counts(turn.unsettled)
        if turn.lost:
            log.warning("LeaseLost: %d jobs were no longer this slot's when they ended", len(turn.lost))
        self._held = self._source.learn(wish, turn, now)
        if turn.children:
            self._ask(lambda connection: unblock(connection, turn.children))
        if surplus := self._source.surplus:
            self._ask(lambda connection: self._source.give_up(connection, surplus))
        return self._held

    def read(self, leases: list[Lease]) -> HeldBatch:
        """The jobs of leases, in the order in which they start; what cannot be read is set aside."""
        stored = read_leased(self._conversation, self._source, leases)
        lease_of = {lease.range * 1024 + position: lease for lease in leases for position in lease.positions}
        jobs = sorted(lease_of, key=lambda job: self._order.get(job, -1)) if self._order else list(lease_of)
        rows = [stored[job] for job in jobs]
        members = [lease_of[job] for job in jobs]
        tasks = [lease.task or row[4] for lease, row in zip(members, rows, strict=True)]
        attempts = [lease.attempt for lease in members]
        return HeldBatch(members, [job % 1024 for job in jobs], tasks, record_batch(rows, tasks, attempts))

    def pass_over(self) -> None:
        """Nothing of what is held can be read: it was set aside."""
        self._held = []

    def run(self, batch: HeldBatch) -> float | None:
        """Give a batch to the handler; how long it took, or None: the seat was declared dead before it began."""
        self._held = []
        if not self._pulse.wait_until_valid():
            return None
        ahead = list({lease.id: lease for lease in batch.leases if lease.is_ahead}.values())
        self._running = (ticks(), ahead) if ahead else None
        self._ended = run_batch(self._plan.handler, batch, self.tasks)
        self._running = None
        return self._ended.seconds

    def is_idle(self, wanted: int) -> bool:
        """Whether nothing is left here for any slot of the run: what another holds may come back."""

        def is_busy(connection: Connection) -> bool:
            return slots.run_is_busy(connection, self._plan.run, self._worker, self._partitions)

        if self._ask(is_busy):
            return False
        if self._ask(lambda connection: held_leases(connection, self._worker)):
            # It knows of none: another server answers, which has not heard of what was settled last.
            self._conversation.doubt()
            return False
        self._upkeep.sweep()
        self._looked_at = 0.0
        self._ask(lambda connection: self._look(connection, wanted))
        has_work = self._ask(lambda connection: self._source.has_work(connection, system.monotonic()))
        return not has_work and not self._ask(is_busy)

    def leave(self) -> None:
        """Be no worker any more."""
        self._pulse.stop()
        try:
            self._ask(self._source.leave)
            self._ask(lambda connection: workers.remove(connection, self._worker))
        except Exception as error:  # The others find out by themselves: this seat does not renew any more.
            log.warning("a slot could not say that it left: %s", error)
        self.close()

    def close(self) -> None:
        """Give back every connection."""
        self._link.close()
        self._database.close()

    def _look(self, connection: Connection, wanted: int) -> None:
        now = system.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._is_gated = slots.is_gated(connection, self._plan.queue_id)
            self._partitions = [each for each, _ in read_partitions(connection, [self._plan.queue_id])]
            if new := self.tasks.look(connection, self._plan.queue_id):
                workers.add_tasks(connection, self._worker, [(self._plan.queue_id, task) for task in new])
        self._source.look(connection, wanted, now)

    def _wish(self, wanted: int, now: float) -> Wish:
        wanted = self._link.at_most(wanted)
        most = STARTED_AT_ONCE if self._plan.is_owned else wanted if self._is_gated else 1
        at_once = min(wanted, most)
        wish = self._source.wish(at_once, wanted - at_once, 0, now)
        self._order = wish.order()
        return wish

    def _settlement(self, ended: Ended) -> Settlement:
        batch = ended.batch
        if batch is None:
            return Settlement()
        freed = sorted({lease.partition_id for lease in batch.leases}) if self._is_gated else []
        return Settlement(ended.succeeded, ended.ends, freed, lambda: batch.attempts)

    def _ask(self, act: Callable[[Connection], T]) -> T:
        return self._conversation.ask(act)

    def _renew(self, connection: Connection) -> workers.Renewal | None:
        renewal, self._has_driver = slots.renew(connection, self._worker, self._plan.drivers[self._shard])
        running = self._running
        if running is not None and ticks() - running[0] > STARTED_NANOSECONDS:
            note_started(connection, self._worker, running[1])
            self._running = None
        return renewal
