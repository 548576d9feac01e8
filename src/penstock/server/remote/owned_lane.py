"""The lane of queues with an owner: this server owns partitions and chooses from them, for whichever worker polls it.

It is in the crew of a queue only while workers that poll it want jobs of it, so that no partition is owned by one that
can give its jobs to nobody. What it chooses is leased to the worker that polls, in the transaction that settles that
worker's ends. A worker gets jobs of a queue only if it runs every task that is chosen there.

Whatever was read may be wrong once the answer to a turn is lost, or one of its ends turns out to be held no more: then
everything is read anew. Before anything more is chosen for anybody, the lost turn is kept from being committed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.clock import system
from penstock.engine.leased_jobs import read_leased
from penstock.engine.link import Link
from penstock.engine.owned_source import OwnedSource
from penstock.engine.source import NOTHING, Wish
from penstock.server.remote.plain_lane import PlainLane, take_turn
from penstock.server.remote.polled_times import waits_of
from penstock.server.remote.registered_worker import QueueSet
from penstock.server.remote.server_row import ServerRow
from penstock.server.remote.turns import Asker, Order, Taken, Unsure, explain_failure, give
from penstock.storage import Connection, Database
from penstock.storage.connection.error_meaning import DatabaseError, is_lost
from penstock.storage.upkeep.sweep import unblock_next
from penstock.storage.work import workers
from penstock.storage.work.exchange import Turn, exchange
from penstock.storage.work.leases import Lease
from penstock.storage.work.remote_workers import take_over_poll
from penstock.storage.work.settle import End

__all__ = ["LINGER_SECONDS", "OwnedLane"]

log = logging.getLogger("penstock")

# How long it stays in a crew after the last poll that wanted jobs of the queue.
LINGER_SECONDS = 3.0
# How long a database that does not answer is waited for, before polls are told so.
PATIENCE_SECONDS = 5.0


class OwnedLane:
    """Used by one thread. `is_closing`: whether the server is about to stop, and waits for nobody."""

    def __init__(self, database: Database, row: ServerRow, plain: PlainLane, is_closing: Callable[[], bool]) -> None:
        self._database = database
        self._row = row
        self._plain = plain
        self._is_closing = is_closing
        self._link = Link(database, "owner", self._give_up)
        # By queue: the tasks that are chosen, and when they were last asked for.
        self._tasks: dict[int, set[str]] = {}
        self._asked_at: dict[int, float] = {}
        self._owner = 0
        self._source = OwnedSource(0, self._tasks)
        # Requests whose turn may still be committed: the worker, what was seen, the request, and who takes its place.
        self._doubtful: list[tuple[int, int, int, int]] = []
        # Whether producers, or other servers, have said that there is news.
        self._has_news = threading.Event()

    def take(self, order: Order) -> Taken:
        """Do a turn: settle what ended, where it begins the poll, and lease what is chosen for its worker."""
        self._heed()
        wanted = 0 if self._row.must_rest else order.want
        if wanted > 0:
            self._join(order.registered.owned)
        now = system.monotonic()
        if self._has_news.is_set():
            self._has_news.clear()
            self._source.look_again()
        if self._tasks:
            self._link.ask(lambda connection: self._source.look(connection, wanted, now))
        if order.settled is not None:
            self._source.note_ends(order.settled.ended, now)
        wish = self._wish(order, wanted, now)
        turn = self._send(order, wish)
        if wish.claim is not None:
            self._plain.claims(order.registered.plain).learn(wish, turn)
        leases = self._source.learn(wish, turn, now)
        if turn.children:
            self._link.ask(lambda connection: unblock_next(connection, turn.children))
        if surplus := self._source.surplus:
            self._link.ask(lambda connection: self._source.give_up(connection, surplus))
        return self._give(order, turn, leases)

    def note_news(self) -> None:
        """From any thread: look at everything, before anything more is chosen."""
        self._has_news.set()

    def leave_unasked(self) -> bool:
        """Leave the crews of queues of which nobody has wanted jobs for a while; whether it is in any still."""
        now = system.monotonic()
        left = {queue for queue, asked_at in self._asked_at.items() if now - asked_at > LINGER_SECONDS}
        if left:
            self._heed()
            self._link.ask(lambda connection: self._source.leave_queues(connection, left))
            for queue in left:
                self._tasks.pop(queue, None)
                self._asked_at.pop(queue, None)
        return bool(self._tasks)

    def close(self) -> None:
        """Let others have the partitions."""
        try:
            if self._tasks:
                self._link.ask(self._source.leave)
        except Exception as error:  # Others take them over when its row is not renewed.
            log.warning("the server could not give up its partitions: %s", error)
        self._link.close()

    def _give_up(self, error: DatabaseError, waited: float) -> Exception | None:
        if self._is_closing() or waited > min(PATIENCE_SECONDS, self._database.request_timeout):
            return self._database.unavailable(error)
        return None

    def _heed(self) -> None:
        """Be the server's row of now, and keep what may still be committed from being so."""
        number = self._row.number()
        if number != self._owner:
            self._owner = number
            self._source = OwnedSource(number, self._tasks)
            known = [(queue, task) for queue, tasks in self._tasks.items() for task in tasks]
            self._link.ask(lambda connection: self._enter(connection, known))
        elif self._row.has_server_changed():
            self._source.forget()
        while self._doubtful:
            remote, seen, request, instead = self._doubtful[0]
            self._link.ask(
                lambda connection: take_over_poll(connection, remote, None, instead, [seen, request])  # noqa: B023
            )
            del self._doubtful[0]

    def _enter(self, connection: Connection, tasks: list[tuple[int, str]]) -> None:
        if not self._database.is_pooled:
            workers.note_session(connection, self._owner)
        workers.add_tasks(connection, self._owner, tasks)

    def _join(self, queues: QueueSet) -> None:
        """Be in the crews of these queues, and choose these tasks of them, if they are all that were chosen so far."""
        new: list[tuple[int, str]] = []
        now = system.monotonic()
        for queue, tasks in queues:
            known = self._tasks.setdefault(queue, set())
            if known.issubset(tasks):
                self._asked_at[queue] = now
                new += [(queue, task) for task in tasks if task not in known]
                known.update(tasks)
        if new:
            # Of what was read before it is not known by now what may start.
            self._source.forget()
            self._link.ask(lambda connection: self._enter(connection, new))

    def _able(self, order: Order) -> set[int]:
        """The queues of which a worker runs whatever is chosen."""
        return {queue for queue, tasks in order.registered.owned if self._tasks.get(queue, {""}).issubset(tasks)}

    def _wish(self, order: Order, wanted: int, now: float) -> Wish:
        wanted = self._link.at_most(wanted)
        if wanted <= 0:
            return NOTHING
        able = self._able(order)
        self._source.withhold(frozenset(), self._row.withheld)
        self._source.cap({queue: 0 for queue in self._tasks if queue not in able})
        wish = self._source.wish(wanted, 0, 0, now) if able else NOTHING
        if wish or not order.registered.plain:
            return wish
        claims = self._plain.claims(order.registered.plain)
        return self._link.ask(lambda connection: claims.wish(connection, order, self._row.withheld))

    def _send(self, order: Order, wish: Wish) -> Turn:
        # Who owns the others' partitions is to hear that their keys are free.
        queues = set() if order.settled is None else self._not_owned(order)
        try:
            turn = self._link.try_once(lambda connection: take_turn(connection, order, wish, tuple(queues)))
        except DatabaseError as error:
            self._source.forget()
            failure = explain_failure(error)
            if isinstance(failure, Unsure):
                self._doubtful.append((order.remote, order.greeting.request, order.request, failure.request))
                self._link.note_failed(error, wish.size)
                if is_lost(error):
                    self._link.close()
            raise failure from error
        if wish:
            self._link.note_given()
        return turn

    def _not_owned(self, order: Order) -> set[int]:
        """The queues with an owner in which a worker ends jobs of partitions that are not this server's."""
        queues: set[int] = set()
        ended = set() if order.settled is None else {named.lease for named in order.settled.named}
        for lease in order.greeting.held.values():
            queue = order.registered.by_queue.get(lease.queue_id)
            if lease.id in ended and queue is not None and queue.is_owned and not self._source.owns(lease.partition_id):
                queues.add(lease.queue_id)
        return queues

    def _give(self, order: Order, turn: Turn, leases: list[Lease]) -> Taken:
        asker = Asker(order.holder, self._link.ask)
        rows = dict(read_leased(asker, self._source, leases)) if leases else {}
        for job in self._expire(order, leases):
            rows.pop(job, None)
        taken = give(self._database.shard, order.registered, turn.record, rows)
        if turn.record is not None:
            taken.waits = waits_of(turn.record.claimed, leases)
        taken.owns = any(self._source.owns_of(queue) for queue, _ in order.registered.owned)
        patience = self._source.patience(system.monotonic())
        taken.again_in = patience if turn.opens_in is None else min(patience, turn.opens_in)
        return taken

    def _expire(self, order: Order, leases: list[Lease]) -> list[int]:
        """Those that have waited for longer than their queue allows are not begun; they end."""
        late = [
            lease
            for lease in leases
            if lease.attempt == 1
            and lease.rescues == 0
            and (most := self._source.max_wait(lease.partition_id)) is not None
            and lease.waited_seconds > most
        ]
        if not late:
            return []
        worker, name = order.holder
        ends = [
            End(lease.id, lease.token, position, lease.range, "expired")
            for lease in late
            for position in lease.positions
        ]
        self._link.ask(lambda connection: exchange(connection, worker, name, (), ends, None))
        jobs = [(lease.partition_id, lease.range * 1024 + p) for lease in late for p in lease.positions]
        self._source.note_ends([(partition, job, "expired") for partition, job in jobs], system.monotonic())
        return [job for _, job in jobs]
