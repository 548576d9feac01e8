"""The lane of queues without an owner: whoever polls claims, over any connection, beside all others.

Workers with the same queues and tasks share what is known of the partitions: whose turn it is, and where dead rows lie.
What a limit or a rate lets start the claim itself finds out, under the gate's lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.clock import system
from penstock.deadline import within
from penstock.engine.leased_jobs import read_leased
from penstock.engine.plain_source import PlainSource
from penstock.engine.source import NOTHING, Wish
from penstock.server.remote.polled_times import waits_of
from penstock.server.remote.registered_worker import QueueSet
from penstock.server.remote.turns import Asker, Order, Taken, explain_failure, give
from penstock.storage import Connection, Database
from penstock.storage.connection.error_meaning import DatabaseError
from penstock.storage.upkeep.sweep import unblock_next
from penstock.storage.work.exchange import Turn, exchange

__all__ = ["PlainClaims", "PlainLane"]


class PlainClaims:
    """What is known of the partitions of some queues; used by any thread."""

    def __init__(self, queues: QueueSet) -> None:
        self._source = PlainSource(0, [queue for queue, _ in queues])
        self._lock = threading.Lock()

    @property
    def source(self) -> PlainSource:
        return self._source

    def wish(self, connection: Connection, order: Order, withheld: frozenset[int]) -> Wish:
        """What to claim for a poll."""
        now = system.monotonic()
        with self._lock:
            self._source.look(connection, order.want, now)
            self._source.withhold(withheld, frozenset())
            wish = self._source.wish(order.want, 0, 0, now)
        if wish.claim is not None:
            # The source is of many workers; which of them has such a job is known of each.
            wish.claim.has_suspect = order.has_suspect
        return wish

    def learn(self, wish: Wish, turn: Turn) -> None:
        """Learn what came of it."""
        with self._lock:
            self._source.learn(wish, turn, system.monotonic())


class PlainLane:
    """Used by any thread. `withheld`: the queues of which this program may take nothing."""

    def __init__(self, database: Database, withheld: Callable[[], frozenset[int]]) -> None:
        self._database = database
        self._withheld = withheld
        self._claims: dict[QueueSet, PlainClaims] = {}

    def claims(self, queues: QueueSet) -> PlainClaims:
        """What is known of the partitions of these."""
        return self._claims.setdefault(queues, PlainClaims(queues))

    def take(self, order: Order) -> Taken:
        """Do a turn: settle what ended, where it begins the poll, and claim."""
        claims = self.claims(order.registered.plain)
        database = self._database
        with within(database.request_timeout, database.clock):
            try:
                with database.connection() as connection:
                    wish = claims.wish(connection, order, self._withheld()) if order.want > 0 else NOTHING
                    turn = take_turn(connection, order, wish)
            except DatabaseError as error:
                raise explain_failure(error) from error
            claims.learn(wish, turn)
            if turn.children:
                database.run(lambda connection: unblock_next(connection, turn.children))
            return self._give(order, claims, turn)

    def _give(self, order: Order, claims: PlainClaims, turn: Turn) -> Taken:
        asker = Asker(order.holder, self._database.run)
        rows = read_leased(asker, claims.source, turn.leases) if turn.leases else {}
        taken = give(self._database.shard, order.registered, turn.record, rows)
        taken.again_in = turn.opens_in
        if turn.record is not None:
            taken.waits = waits_of(turn.record.claimed, turn.leases)
        return taken


def take_turn(connection: Connection, order: Order, wish: Wish, wake: tuple[int, ...] = ()) -> Turn:
    """Send a turn."""
    settlement = None if order.settled is None else order.settled.settlement
    worker, name = order.holder
    return exchange(
        connection,
        worker,
        name,
        () if settlement is None else settlement.succeeded,
        () if settlement is None else settlement.ends,
        wish.claim,
        wish.choices,
        () if settlement is None else settlement.freed,
        remote=order.turn(wake),
    )
