"""An executor worker on one shard: a worker there, with a row, a heartbeat that renews it, and a conversation.

Declared dead, it settles nothing: what it held runs elsewhere. Where its shard does not answer, it keeps the results,
and settles them when the shard is back, if it still counts as alive then.

It settles everything it holds before it claims anything else. So after a lost answer, whatever it is found to hold was
leased to it by that answer.

When a process dies, an attempt is charged to each job that had started. So of a batch only the first jobs count as
started at once, and the rest as claimed ahead until the batch has run for a second: after a crash before that they run
again a few at a time, so that one row that kills its executor is found without using up the attempts of thousands. How
many count as started at once: one on a plain queue; all where there is a limit, which counts what has started; sixteen
where an owner chose them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from typing import TypeVar

from penstock.clock import system, ticks
from penstock.engine.conversation import Conversation, Holder, Settlement
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.leased_jobs import read_leased
from penstock.engine.link import Link, wait_as_long_as_a_request
from penstock.engine.owned_source import OwnedSource
from penstock.engine.plain_source import PlainSource
from penstock.engine.source import NOTHING, Source, Wish
from penstock.shards.shard_urls import open_one
from penstock.spark.claiming.job_batch import build_job_batch
from penstock.spark.claiming.worker_row import register_worker
from penstock.spark.processing.batch_run import BatchResult, LeasedBatch, run_batch
from penstock.spark.processing.work_plan import WorkPlan
from penstock.storage.connection.database import Connection
from penstock.storage.enqueue.job_group import RANGE
from penstock.storage.upkeep.sweep import unblock
from penstock.storage.work import spark_workers, workers
from penstock.storage.work.exchange import held_leases
from penstock.storage.work.leases import Lease
from penstock.storage.work.owner import read_partitions
from penstock.storage.work.settle import note_started
from penstock.upkeep import Upkeep

__all__ = ["ShardWorker"]

T = TypeVar("T")
log = logging.getLogger("penstock")

# How often it reads which tasks and partitions the queue has, and whether it has a limit.
REFRESH_SECONDS = 1.0
# A batch that has run for so long counts as started: if its process dies, an attempt is charged to all its jobs.
STARTED_NANOSECONDS = 1_000_000_000
# So many of the jobs that an owner chose count as started at once.
STARTED_AT_ONCE = 16
# How long a shard that does not answer is waited for, where the executor worker has others.
PATIENCE_SECONDS = 2.0


class ShardWorker:
    """Used by the one thread of its executor worker; only the heartbeat calls `_renew` from its own."""

    def __init__(self, plan: WorkPlan, shard: int, *, has_others: bool) -> None:
        self._plan = plan
        self._shard = shard
        self._database = open_one(
            plan.urls,
            shard,
            pool_size=2,
            request_timeout=PATIENCE_SECONDS if has_others else 30.0,
            lease_seconds=plan.lease_seconds,
        )
        # A copy for each shard: which tasks were announced differs between them.
        self.tasks = deepcopy(plan.tasks)
        self._link = Link(self._database, "conversation", wait_as_long_as_a_request(self._database))
        # Never started: this thread calls it for a whole round before it says that nothing is left.
        self._upkeep = Upkeep(self._database, None)
        self._refreshed_at = 0.0
        self._is_gated = False
        self._has_driver = True
        self._is_asked_to_stop = False
        self._partitions: list[int] = []
        # Of the jobs that were chosen last: by job, its place in the order in which they start.
        self._order: dict[int, int] = {}
        # What was claimed and has not run, and what has run and is not settled yet.
        self._held: list[Lease] = []
        self._result = BatchResult()
        # When the running batch began, and its leases that were claimed ahead: after STARTED_NANOSECONDS the heartbeat
        # notes that they have started.
        self._running: tuple[int, list[Lease]] | None = None
        self.counts: Counter[str] = Counter()

    @property
    def is_unavailable(self) -> bool:
        """Whether its shard is known to be down."""
        return self._database.breaker.is_down

    @property
    def reason_to_end(self) -> str | None:
        """Why it takes no more: it was declared dead, its driver is gone, somebody asked it to end, or it is too old
        for the database by now.

        Of that last the driver hears when it begins the next round.
        """
        if self._heartbeat.is_declared_dead:
            return "dead"
        may_go_on = self._has_driver and not self._is_asked_to_stop and self._heartbeat.mismatch is None
        return None if may_go_on else "stopped"

    def register(self) -> None:
        """Become a worker on the shard."""
        plan = self._plan

        def find_tasks(connection: Connection) -> list[tuple[int, str]]:
            self.tasks.refresh(connection, plan.queue_id)
            return [(plan.queue_id, task) for task in self.tasks]

        row = register_worker(
            self._database, plan.run, concurrency=1, lease_seconds=plan.lease_seconds, find_tasks=find_tasks
        )
        self._worker = row.id
        self._source: Source = (
            OwnedSource(self._worker, {plan.queue_id: self.tasks})
            if plan.is_owned
            else PlainSource(self._worker, [plan.queue_id])
        )
        self._conversation = Conversation(self._link, Holder(row.id, row.name), on_doubt=self._source.forget)
        self._heartbeat = Heartbeat(self._database, plan.lease_seconds, self._renew, row.registered_at, row.server)

    def take_turn(self, wanted: int, *, is_last: bool) -> list[Lease]:
        """Settle what ended and claim what comes next, unless it is the last turn; the leases.

        A last turn claims nothing. Where the answer to an earlier one was lost, it finds what that had leased.
        """
        if self._held:
            return self._held
        result = self._result
        wish = NOTHING
        if self._heartbeat.has_server_changed():
            self._conversation.doubt()
        is_last = is_last or self._conversation.is_in_doubt
        if not is_last:
            self._ask(lambda connection: self._refresh(connection, wanted))
        now = system.monotonic()
        if result.batch is not None:
            self._source.note_ends(result.list_ends(), now)
        if not is_last:
            wish = self._build_wish(wanted, now)
        if not result and not wish and not self._conversation.is_in_doubt:
            return []
        turn = self._conversation.exchange(self._build_settlement(result), wish)
        self._result = BatchResult()
        self.counts += result.count_ends(turn.unsettled)
        if turn.not_held:
            log.warning("LeaseLost: %d jobs were no longer this executor worker's when they ended", len(turn.not_held))
        self._held = self._source.learn(wish, turn, now)
        if turn.children:
            self._ask(lambda connection: unblock(connection, turn.children))
        if surplus := self._source.surplus:
            self._ask(lambda connection: self._source.give_up(connection, surplus))
        return self._held

    def read_batch(self, leases: list[Lease]) -> LeasedBatch:
        """The jobs of leases, in the order in which they start; what cannot be read is set aside."""
        stored = read_leased(self._conversation, self._source, leases)
        lease_of = {lease.range * RANGE + position: lease for lease in leases for position in lease.positions}
        jobs = sorted(lease_of, key=lambda job: self._order.get(job, -1)) if self._order else list(lease_of)
        rows = [stored[job] for job in jobs]
        members = [lease_of[job] for job in jobs]
        tasks = [lease.task or row[4] for lease, row in zip(members, rows, strict=True)]
        attempts = [lease.attempt for lease in members]
        return LeasedBatch(members, [job % RANGE for job in jobs], tasks, build_job_batch(rows, tasks, attempts))

    def drop_unreadable(self) -> None:
        """Nothing of what is held can be read: it was set aside."""
        self._held = []

    def run_batch(self, batch: LeasedBatch) -> float | None:
        """Give a batch to the handler; how long it took, or None: this worker was declared dead before it began."""
        self._held = []
        if not self._heartbeat.wait_until_valid():
            return None
        ahead = list({lease.id: lease for lease in batch.leases if lease.is_ahead}.values())
        self._running = (ticks(), ahead) if ahead else None
        self._result = run_batch(self._plan.handler, batch, self.tasks)
        self._running = None
        return self._result.seconds

    @property
    def breach(self) -> str | None:
        """How the handler broke its contract with the batch that ran last, if it did."""
        return self._result.breach

    def end_run(self) -> None:
        """Put back what the handler broke its contract with, and let the run's other workers here hear that it ends."""
        self.take_turn(0, is_last=True)
        self._ask(lambda connection: workers.remove(connection, self._plan.drivers[self._shard]))

    def is_idle(self, wanted: int) -> bool:
        """Whether nothing is left here for any worker of the run: what another of them holds may come back."""

        def is_busy(connection: Connection) -> bool:
            return spark_workers.run_is_busy(connection, self._plan.run, self._worker, self._partitions)

        if self._ask(is_busy):
            return False
        if self._ask(lambda connection: held_leases(connection, self._worker)):
            # This worker has settled all it held. So another server answers, which has not heard of that.
            self._conversation.doubt()
            return False
        self._upkeep.sweep()
        self._refreshed_at = 0.0
        self._ask(lambda connection: self._refresh(connection, wanted))
        has_work = self._ask(lambda connection: self._source.has_work(connection, system.monotonic()))
        return not has_work and not self._ask(is_busy)

    def leave(self) -> None:
        """Be no worker any more."""
        self._heartbeat.stop()
        try:
            self._ask(self._source.leave)
            self._ask(lambda connection: workers.remove(connection, self._worker))
        except Exception as error:  # Others rescue what it held when its row is not renewed.
            log.warning("an executor worker could not say that it left: %s", error)
        self.close()

    def close(self) -> None:
        """Give back every connection."""
        self._link.close()
        self._database.close()

    def _refresh(self, connection: Connection, wanted: int) -> None:
        now = system.monotonic()
        if now - self._refreshed_at >= REFRESH_SECONDS:
            self._refreshed_at = now
            self._is_gated = spark_workers.is_gated(connection, self._plan.queue_id)
            self._partitions = [each.id for each in read_partitions(connection, [self._plan.queue_id])[1]]
            if new := self.tasks.refresh(connection, self._plan.queue_id):
                workers.add_tasks(connection, self._worker, [(self._plan.queue_id, task) for task in new])
        self._source.look(connection, wanted, now)

    def _build_wish(self, wanted: int, now: float) -> Wish:
        wanted = self._link.at_most(wanted)
        most = STARTED_AT_ONCE if self._plan.is_owned else wanted if self._is_gated else 1
        at_once = min(wanted, most)
        wish = self._source.wish(at_once, wanted - at_once, 0, now)
        self._order = wish.order()
        return wish

    def _build_settlement(self, result: BatchResult) -> Settlement:
        batch = result.batch
        if batch is None:
            return Settlement()
        freed = sorted({lease.partition_id for lease in batch.leases}) if self._is_gated else []
        return Settlement(result.succeeded, result.ends, freed, lambda: batch.attempts)

    def _ask(self, act: Callable[[Connection], T]) -> T:
        return self._conversation.ask(act)

    def _renew(self, connection: Connection) -> workers.Renewal | None:
        renewal, self._has_driver = spark_workers.renew(connection, self._worker, self._plan.drivers[self._shard])
        self._is_asked_to_stop |= renewal is not None and renewal.is_asked_to_stop
        running = self._running
        if running is not None and ticks() - running[0] > STARTED_NANOSECONDS:
            note_started(connection, self._worker, running[1])
            self._running = None
        return renewal
