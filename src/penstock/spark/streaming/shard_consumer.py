"""The worker behind a stream of jobs on one shard, in the process in which Spark plans the stream's batches.

Its row outlives that process for as long as its lease lasts: a query that is started again within that time finds its
worker by the offset, goes on renewing it, and settles under the same leases. After that the jobs are rescued like any
other dead worker's; whatever the query says about them then changes nothing. Spark ends the process with its query,
without a word: nothing can be done at the end, and the row of a worker that holds nothing just runs out.
"""

from __future__ import annotations

import logging

from penstock.clock import system, ticks
from penstock.engine.conversation import Conversation, Holder, Settlement
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.link import Link, wait_as_long_as_a_request
from penstock.engine.plain_source import PlainSource
from penstock.engine.source import NOTHING
from penstock.spark.claiming.known_tasks import KnownTasks
from penstock.spark.claiming.worker_row import WorkerRow, register_worker
from penstock.spark.streaming.stream_offset import ShardOffset
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import QueueEntry
from penstock.storage.upkeep.sweep import unblock
from penstock.storage.work import spark_workers, workers
from penstock.storage.work.exchange import held_leases
from penstock.upkeep import Upkeep

__all__ = ["ShardConsumer"]

log = logging.getLogger("penstock")

# How often it reads which tasks the queue has.
REFRESH_SECONDS = 1.0


class ShardConsumer:
    """Settles what a batch covered and claims the next; used by one thread."""

    def __init__(
        self, database: Database, queue: QueueEntry, tasks: tuple[str, ...] | None, lease_seconds: float
    ) -> None:
        self._lease_seconds = lease_seconds
        self._database = database
        self._queue = queue
        self._tasks = KnownTasks(queue.name, {}, tasks)
        self._link = Link(database, "conversation", wait_as_long_as_a_request(database))
        self._worker = 0
        self._refreshed_at = 0.0
        # What was claimed last, and what was settled last.
        self._claimed = ShardOffset()
        self._claimed_at = ticks()
        self._settled: ShardOffset | None = None
        # A batch that was committed while the shard was away; it is settled when the shard is back.
        self._unsettled: ShardOffset | None = None
        self._upkeep = Upkeep(self._database, None)
        self._upkeep.start()

    def adopt(self, offset: ShardOffset) -> None:
        """Go on as the worker that holds this batch, if it still lives."""
        if self._worker or not offset.worker:
            return
        registered_at = ticks()
        name, server = self._database.run(lambda connection: spark_workers.name_if_alive(connection, offset.worker))
        if name is None:
            return
        self._start_worker(WorkerRow(offset.worker, name, registered_at, server))
        known = {(each.lease, each.token) for each in offset.claimed}
        held = self._conversation.ask(lambda connection: held_leases(connection, offset.worker))
        # Other leases of the worker were claimed for a batch whose offset Spark never wrote down.
        unplanned = [lease for lease in held if (lease.id, lease.token) not in known]
        self._claimed = ShardOffset.of(offset.worker, unplanned) if unplanned else offset

    def claim_next(self, done: ShardOffset, most: int) -> ShardOffset:
        """Settle what the batches up to `done` covered, and claim; `done` itself where there is nothing new."""
        self.adopt(done)
        if self._worker and self._heartbeat.is_declared_dead:
            log.warning("LeaseLost: this stream's worker was silent for too long; what it held goes to others")
            self._stop_worker()
        if self._worker and self._heartbeat.mismatch is not None:
            self.settle(done)
            raise self._heartbeat.mismatch
        if not self._worker:
            self._register()
        if self._unsettled is not None:
            unsettled = self._unsettled
            self.settle(unsettled)
            self._unsettled = None
        unplanned = self._find_unplanned(done)
        if unplanned is not None:
            # An earlier call claimed these, and Spark has not planned them yet: it gets the same offset again.
            self.settle(done)
            return unplanned
        if most <= 0:
            self.settle(done)
            return done
        return self._exchange(done, most)

    def settle(self, done: ShardOffset) -> None:
        """Settle what a batch covered, once."""
        if self._is_unsettled(done):
            self._exchange(done, 0)

    def settle_later(self, done: ShardOffset) -> None:
        """Remember a committed batch, to be settled when the shard is back."""
        if self._is_unsettled(done):
            self._unsettled = done

    def close(self) -> None:
        """End every thread and connection; what is held stays held, for the query may be started again."""
        self._upkeep.stop()
        if self._worker:
            self._stop_worker()

    def _is_unsettled(self, done: ShardOffset) -> bool:
        """Whether a batch may still be held: one of an earlier worker is not, since that worker is gone."""
        return bool(done.claimed) and done != self._settled and done.worker == self._worker

    def _find_unplanned(self, done: ShardOffset) -> ShardOffset | None:
        if self._claimed not in (done, ShardOffset()) and self._claimed.worker == self._worker:
            return self._claimed
        return None

    def _exchange(self, done: ShardOffset, most: int) -> ShardOffset:
        now = system.monotonic()
        wish = NOTHING
        if most > 0:
            if self._heartbeat.has_server_changed():
                self._conversation.doubt()
            self._conversation.ask(lambda connection: self._refresh(connection, most, now))
            wish = self._source.wish(self._link.at_most(most), 0, 0, now)
        age = (ticks() - self._claimed_at) // 1000
        succeeded = done.succeeded(age) if self._is_unsettled(done) else []
        turn = self._conversation.exchange(Settlement(succeeded, attempts=done.attempts), wish)
        self._settled = done
        if self._claimed == done:
            self._claimed = ShardOffset()
        # A query that was started again settles its last batch a second time: what it settled itself is not lost.
        if turn.not_held and (gone := self._conversation.find_not_held(turn.not_held, done.attempts())):
            log.warning("LeaseLost: %d jobs of a batch had gone to others before it was committed", len(gone))
        if turn.children:
            self._conversation.ask(lambda connection: unblock(connection, turn.children))
        leases = self._source.learn(wish, turn, now)
        if not leases:
            return done
        # If the query dies, no job that it holds is charged an attempt: nobody could say which row it broke on.
        self._conversation.ask(lambda connection: spark_workers.charge_nothing(connection, self._worker))
        self._claimed, self._claimed_at = ShardOffset.of(self._worker, leases), ticks()
        return self._claimed

    def _refresh(self, connection: Connection, most: int, now: float) -> None:
        if now - self._refreshed_at >= REFRESH_SECONDS:
            self._refreshed_at = now
            if new := self._tasks.refresh(connection, self._queue.id):
                workers.add_tasks(connection, self._worker, [(self._queue.id, task) for task in new])
        self._source.look(connection, most, now)

    def _register(self) -> None:
        def find_tasks(connection: Connection) -> list[tuple[int, str]]:
            self._tasks.refresh(connection, self._queue.id)
            return [(self._queue.id, task) for task in self._tasks]

        row = register_worker(
            self._database, "spark/stream ", concurrency=1, lease_seconds=self._lease_seconds, find_tasks=find_tasks
        )
        self._start_worker(row)

    def _start_worker(self, row: WorkerRow) -> None:
        """Be this worker: claim and settle in its name, and renew its row."""
        self._worker = row.id
        self._claimed = ShardOffset()
        self._source = PlainSource(row.id, [self._queue.id])
        self._conversation = Conversation(self._link, Holder(row.id, row.name), on_doubt=self._source.forget)
        self._heartbeat = Heartbeat(
            self._database,
            self._lease_seconds,
            lambda connection: workers.renew(connection, row.id),
            row.registered_at,
            row.server,
        )

    def _stop_worker(self) -> None:
        self._heartbeat.stop()
        self._link.close()
        self._worker = 0
