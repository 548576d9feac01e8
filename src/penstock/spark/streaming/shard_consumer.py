"""A claimer: the worker behind a stream of jobs on one shard, in the process in which Spark plans the stream's batches.

Its row outlives that process for as long as its lease lasts: a query that is started again within that time finds its
worker by the offset, goes on renewing it, and settles under the same leases. After that the jobs are rescued like any
other dead worker's; whatever the query says about them then changes nothing. Spark ends the process with its query,
without a word: nothing can be done at the end, and the row of a worker that holds nothing just runs out.
"""

from __future__ import annotations

import logging
import os
import socket

from penstock.clock import system, ticks
from penstock.engine.conversation import Conversation, Holder, Settlement
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.link import Link, wait_as_long_as_a_request
from penstock.engine.plain_source import PlainSource
from penstock.engine.source import NOTHING
from penstock.spark.claiming.known_tasks import Tasks
from penstock.spark.streaming.stream_offset import ClaimOffset
from penstock.storage import Connection, Database, slots, workers
from penstock.storage.catalogue import QueueEntry
from penstock.storage.exchange import held_leases
from penstock.storage.sweep import unblock
from penstock.upkeep import Upkeep
from penstock.version import __version__

__all__ = ["Claimer"]

log = logging.getLogger("penstock")

LOOK_SECONDS = 1.0


class Claimer:
    """Settles what a batch covered and claims the next; used by one thread."""

    def __init__(
        self, database: Database, queue: QueueEntry, tasks: tuple[str, ...] | None, lease_seconds: float
    ) -> None:
        self._lease_seconds = lease_seconds
        self._database = database
        self._queue = queue
        self._tasks = Tasks(queue.name, {}, tasks)
        self._link = Link(database, "conversation", wait_as_long_as_a_request(database))
        self._worker = 0
        self._looked_at = 0.0
        # What was claimed last, and whether it was settled.
        self._claimed = ClaimOffset()
        self._claimed_at = ticks()
        self._settled: ClaimOffset | None = None
        # What was covered while the shard was away, and is to be settled when it is back.
        self._owed: ClaimOffset | None = None
        self._upkeep = Upkeep(self._database, None)
        self._upkeep.start()

    def adopt(self, offset: ClaimOffset) -> None:
        """Be the worker that holds this, if it still lives."""
        if self._worker or not offset.worker:
            return
        registered_at = ticks()
        name, server = self._database.run(lambda connection: slots.name_if_alive(connection, offset.worker))
        if name is None:
            return
        self._begin(offset.worker, name, registered_at, server)
        known = {(each.lease, each.token) for each in offset.claimed}
        held = self._conversation.ask(lambda connection: held_leases(connection, offset.worker))
        # What it holds beyond that was claimed for a batch that Spark never wrote down.
        unplanned = [lease for lease in held if (lease.id, lease.token) not in known]
        self._claimed = ClaimOffset.of(offset.worker, unplanned) if unplanned else offset

    def next(self, done: ClaimOffset, most: int) -> ClaimOffset:
        """Settle what the batches up to `done` covered, and claim; `done` itself where there is nothing new."""
        self.adopt(done)
        if self._worker and self._pulse.is_lost:
            log.warning("LeaseLost: this stream's worker was silent for too long; what it held goes to others")
            self._end()
        if self._worker and self._pulse.mismatch is not None:
            self.settle(done)
            raise self._pulse.mismatch
        if not self._worker:
            self._register()
        if self._owed is not None:
            owed = self._owed
            self.settle(owed)
            self._owed = None
        unplanned = self._unplanned(done)
        if unplanned is not None:
            # Spark was told of these and has not planned them: told again, they are claimed once.
            self.settle(done)
            return unplanned
        if most <= 0:
            self.settle(done)
            return done
        return self._exchange(done, most)

    def settle(self, done: ClaimOffset) -> None:
        """Settle what a batch covered, once."""
        if self._is_unsettled(done):
            self._exchange(done, 0)

    def owe(self, done: ClaimOffset) -> None:
        """Settle this when the shard is back."""
        if self._is_unsettled(done):
            self._owed = done

    def waiting(self) -> int:
        """How many jobs could be claimed now."""
        return self._database.run(lambda connection: slots.waiting_in_queue(connection, self._queue.id))

    def close(self) -> None:
        """End every thread and connection; what is held stays held, for the query may be started again."""
        self._upkeep.stop()
        if self._worker:
            self._end()

    def _is_unsettled(self, done: ClaimOffset) -> bool:
        """Whether a batch may still be held: another worker than this one, which is gone, holds nothing."""
        return bool(done.claimed) and done != self._settled and done.worker == self._worker

    def _unplanned(self, done: ClaimOffset) -> ClaimOffset | None:
        if self._claimed not in (done, ClaimOffset()) and self._claimed.worker == self._worker:
            return self._claimed
        return None

    def _exchange(self, done: ClaimOffset, most: int) -> ClaimOffset:
        now = system.monotonic()
        wish = NOTHING
        if most > 0:
            if self._pulse.has_server_changed():
                self._conversation.doubt()
            self._conversation.ask(lambda connection: self._look(connection, most, now))
            wish = self._source.wish(self._link.at_most(most), 0, 0, now)
        age = (ticks() - self._claimed_at) // 1000
        succeeded = done.succeeded(age) if self._is_unsettled(done) else []
        turn = self._conversation.exchange(Settlement(succeeded, attempts=done.attempts), wish)
        self._settled = done
        if self._claimed == done:
            self._claimed = ClaimOffset()
        # A query that was started again does not know what it had settled before.
        if turn.lost and (lost := self._conversation.find_lost(turn.lost, done.attempts())):
            log.warning("LeaseLost: %d jobs of a batch had gone to others before it was committed", len(lost))
        if turn.children:
            self._conversation.ask(lambda connection: unblock(connection, turn.children))
        leases = self._source.learn(wish, turn, now)
        if not leases:
            return done
        # A stream cannot tell which row it broke on: what it held when it died is charged to none.
        self._conversation.ask(lambda connection: slots.charge_nothing(connection, self._worker))
        self._claimed, self._claimed_at = ClaimOffset.of(self._worker, leases), ticks()
        return self._claimed

    def _look(self, connection: Connection, most: int, now: float) -> None:
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            if new := self._tasks.look(connection, self._queue.id):
                workers.add_tasks(connection, self._worker, [(self._queue.id, task) for task in new])
        self._source.look(connection, most, now)

    def _register(self) -> None:
        host, pid, registered_at = socket.gethostname(), os.getpid(), ticks()
        name = f"spark/stream {host}:{pid}"

        def register(connection: Connection) -> tuple[int, str | None]:
            self._tasks.look(connection, self._queue.id)
            worker = workers.register(
                connection,
                name=name,
                host=host,
                pid=pid,
                version=__version__,
                concurrency=1,
                lease_seconds=self._lease_seconds,
                tasks=[(self._queue.id, task) for task in self._tasks],
            )
            return worker, workers.begin(connection, worker)

        worker, server = self._database.run(register)
        self._begin(worker, workers.full_name(name, worker), registered_at, server)

    def _begin(self, worker: int, name: str, registered_at: int, server: str | None) -> None:
        self._worker = worker
        self._claimed = ClaimOffset()
        self._source = PlainSource(worker, [self._queue.id])
        self._conversation = Conversation(self._link, Holder(worker, name), on_doubt=self._source.forget)
        self._pulse = Heartbeat(
            self._database,
            self._lease_seconds,
            lambda connection: workers.renew(connection, worker),
            registered_at,
            server,
        )

    def _end(self) -> None:
        self._pulse.stop()
        self._link.close()
        self._worker = 0
