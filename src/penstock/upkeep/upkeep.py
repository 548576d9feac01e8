"""The round of upkeep.

    promote   what is due becomes ready                                     on time, to a quarter of a second
    cron      entries that are due become jobs                              the same
    rescue    what dead workers held becomes ready again                    every sweep (2 s)
    expire    what waited longer than its queue allows ends                 the same
    park      what no live worker knows leaves the order, and comes back    the same
              when one knows it
    drain     replaced key maps are closed, and drained when nothing is     the same
              left of them
    suspend   what came back of paused loads leaves the order again         the same
    delete    what is found in deleted queues ends                          the same
    fold      the tally is added into the totals, that of causes to these   the same
    clean     the progress of ended jobs, and what rates spent before,      the same
              are forgotten
    unblock   children whose parents have ended are let go, where nobody    every 2 s, or so rarely that it takes a
              could tell them                                               twentieth of the time
    list      keys of what is left of closed maps are listed, so that       the same
              others need not wait
    note      the figures of the minute are kept, for a day                 once a minute, by one worker
    times     how long jobs waited and ran is told, of those that this      once a minute, by each; the rest when
              process settled                                               it stops
    forget    stages that were never published, receipts that nobody        every minute
              will ask for
    prune     tables ahead are made, old ones dropped; of the audit goes    the same
              what is old

Each duty is bounded, skips what others hold, and fails alone: one that raises is tried again next time, and told where
that does not help (see troubles).
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from penstock.clock import system
from penstock.errors import PartitionUnavailable
from penstock.storage.catalogue import resize
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import ConnectionLost
from penstock.storage.loads import loads as load
from penstock.storage.repair import audit
from penstock.storage.repair.deleting import end_deleted
from penstock.storage.upkeep import sweep
from penstock.storage.upkeep.prune import prune
from penstock.storage.upkeep.tables_ahead import make_ahead, use_daily_slice
from penstock.storage.work import workers
from penstock.upkeep.cron import fire_crons
from penstock.upkeep.queue_times import QueueTimes
from penstock.upkeep.shared_upkeep import SharedUpkeep
from penstock.upkeep.troubles import Troubles

__all__ = ["Upkeep"]

log = logging.getLogger("penstock")
T = TypeVar("T")

SWEEP_SECONDS = 2.0
LOOK_SECONDS = 0.25
PRUNE_SECONDS = 60.0
# So long a worker that stops tries to tell its last figures.
LAST_SECONDS = 2.0
# So many children are looked at in one transaction.
CHILDREN = 1_024


class Upkeep:
    """A thread of a worker, for one shard. Without a `retention` nothing is pruned: whoever does not know how long to
    keep history only makes tables ahead.
    """

    def __init__(
        self,
        database: Database,
        retention: Mapping[str, float] | None,
        on_rescued: Callable[[int], None] = lambda _: None,
        shared: SharedUpkeep | None = None,
    ) -> None:
        self._database = database
        self._retention = retention
        self._on_rescued = on_rescued
        self._shared = shared
        # Counted by whoever settles jobs on this database, with this object at hand.
        self.times = QueueTimes()
        self._wake = threading.Event()
        self._is_stopping = False
        self._look_at = 0.0
        self._unblock_seconds = SWEEP_SECONDS
        self._list_seconds = SWEEP_SECONDS
        self._note_at = 0.0
        self._parked_to = 0
        self._thread = threading.Thread(target=self._run, name="penstock-upkeep", daemon=True)
        self._last: dict[str, float] = {}
        # Children that are to be looked at, appended by any thread; the lock is held while some of them are.
        self._children: deque[int] = deque()
        self._unblocking = threading.Lock()
        # One duty at a time: a sweep beside one that has not committed yet would miss what that commits.
        self._doing = threading.Lock()
        self._troubles = Troubles(self._note_trouble)

    def start(self) -> None:
        """Begin the rounds."""
        self._thread.start()

    def stop(self) -> None:
        """End them, and tell what was counted since the last minute."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join()
        if not self._database.breaker.is_down:
            try:
                self.note_times(LAST_SECONDS)
            except Exception as error:
                log.warning("how long the last jobs waited and ran could not be told: %s", error)

    def look_in(self, seconds: float) -> None:
        """From another thread: something is due in so many seconds."""
        look_at = system.monotonic() + seconds
        if look_at < self._look_at:
            self._look_at = look_at
            self._wake.set()

    def unblock_later(self, children: Sequence[int]) -> None:
        """From another thread: look at these children soon."""
        self._children.extend(children)
        self._wake.set()

    def sweep(self) -> bool:
        """One whole round, now, in the calling thread; for whoever must know that nothing is left to do. Whether it got
        to the end of it.
        """
        for act in (sweep.rescue, sweep.promote):
            self._do(act)
        self._unblock()
        for act in (sweep.expire, fire_crons, sweep.park, resize.drain, load.suspend_paused_loads, end_deleted):
            self._do(act)
        if self._shared is not None:
            self._shared.sweep()
        return self._unblock_some()

    def _run(self) -> None:
        while not self._is_stopping:
            self._promote()
            if not self._unblock_some():
                self._wake.set()
            if self._is_time("sweep", SWEEP_SECONDS):
                self._rescue()
                self._park()
                for act in (
                    sweep.expire,
                    resize.drain,
                    load.suspend_paused_loads,
                    end_deleted,
                    sweep.fold,
                    sweep.fold_causes,
                    sweep.clean,
                ):
                    self._do(act)
            if self._is_time("unblock", self._unblock_seconds):
                self._unblock()
            if self._is_time("list_rest", self._list_seconds):
                self._list_rest()
            if system.monotonic() >= self._note_at:
                self._note_minute()
            if self._is_time("prune", PRUNE_SECONDS):
                self._prune()
            self._wake.wait(min(max(self._look_at - system.monotonic(), 0.0), LOOK_SECONDS))
            self._wake.clear()

    def _promote(self) -> None:
        self._look_at = system.monotonic() + LOOK_SECONDS
        jobs_due_in, crons_due_in = self._do(workers.next_due) or (None, None)
        for due_in, act in ((jobs_due_in, sweep.promote), (crons_due_in, fire_crons)):
            if due_in is not None and due_in <= 0:
                self._do(act)
            elif due_in is not None:
                self._look_at = min(self._look_at, system.monotonic() + due_in)

    def _rescue(self) -> None:
        rescued = self._do(sweep.rescue)
        if rescued is not None and rescued.workers:
            log.warning(
                "workers found dead: %d; of their jobs %d run again, %d went to the dead letters",
                rescued.workers,
                rescued.jobs - rescued.dead,
                rescued.dead,
            )
        if rescued is not None and rescued.jobs:
            self._on_rescued(rescued.jobs)

    def _park(self) -> None:
        # Where very many partitions have something ready, each round looks at some of them.
        after = self._parked_to

        def park(connection: Connection) -> tuple[int, int | None]:
            return sweep.park_some(connection, after)

        found = self._do(park)
        if found is not None:
            self._parked_to = found[1] or 0

    def _unblock(self) -> None:
        # A child whose parents had ended before it was committed waits for this, so it comes often; with very many
        # blocked jobs a look takes long, and then it comes so rarely that it takes a twentieth of the time.
        started_at = system.monotonic()
        found = self._do(sweep.unblock_untold)
        self.unblock_later(found[1] if found is not None else [])
        self._unblock_seconds = max(SWEEP_SECONDS, 20 * (system.monotonic() - started_at))

    def _unblock_some(self) -> bool:
        """Look at children of what was cancelled, generation after generation, for a moment: what is due and what dead
        workers held comes in between. Whether none is left.
        """
        deadline = system.monotonic() + LOOK_SECONDS
        with self._unblocking:
            while self._children and system.monotonic() < deadline:
                some = [self._children.popleft() for _ in range(min(len(self._children), CHILDREN))]
                found = self._try("unblock", functools.partial(self._database.run, _unblock_act(some), timeout=5.0))
                # Where this failed, `_unblock` finds them: it looks at everything that is blocked.
                self._children.extend(found[1] if found is not None else [])
            return not self._children

    def _list_rest(self) -> None:
        # Looks through some of the jobs that a resize left behind; so rarely that it takes a twentieth of the time.
        started_at = system.monotonic()
        self._do(resize.list_rest)
        self._list_seconds = max(SWEEP_SECONDS, 20 * (system.monotonic() - started_at))

    def note_times(self, timeout: float = 5.0) -> None:
        """Write down what was counted of waits and run times and was not told yet."""
        counted = self.times.unwritten()
        if counted:
            self._database.run(lambda connection: sweep.note_times(connection, counted), timeout=timeout)
            self.times.note_written(counted)

    def _note_minute(self) -> None:
        # First: this minute is over for whoever counts.
        self._try("note_times", self.note_times)
        left = self._do(sweep.note_minute)
        self._note_at = system.monotonic() + (PRUNE_SECONDS if left is None else max(left, SWEEP_SECONDS))

    def _prune(self) -> None:
        self._do(load.forget_stages)
        self._do(sweep.forget_receipts)
        if self._retention is None:
            self._do(make_ahead)
            self._do(use_daily_slice)
            return
        retention = self._retention

        def forget_audit(connection: Connection) -> int:
            return audit.forget(connection, retention["audit"])

        self._do(forget_audit)
        self._try("prune", lambda: prune(self._database, retention))

    def _is_time(self, duty: str, every_seconds: float) -> bool:
        now = system.monotonic()
        if now - self._last.get(duty, -every_seconds) < every_seconds:
            return False
        self._last[duty] = now
        return True

    def _do(self, act: Callable[[Connection], T]) -> T | None:
        name = getattr(act, "__name__", "duty").strip("_")
        with self._doing:
            return self._try(name, lambda: self._database.run(act, timeout=5.0))

    def _try(self, duty: str, act: Callable[[], T]) -> T | None:
        if self._is_stopping:
            return None  # Where the database is away each duty would wait for it in turn.
        try:
            done = act()
        except Exception as error:
            if self._database.breaker.is_down:
                # The breaker has logged that; each duty would say it again.
                log.debug("upkeep could not reach the database: %s", error)
            elif not self._is_stopping:
                self._troubles.note_failure(duty, error)
            return None
        self._troubles.note_done(duty)
        return done

    def _note_trouble(self, duty: str, error: str | None, seconds: float) -> None:
        with suppress(PartitionUnavailable, *ConnectionLost):
            self._database.run(lambda connection: sweep.note_trouble(connection, duty, error, seconds), timeout=5.0)


def _unblock_act(children: Sequence[int]) -> Callable[[Connection], tuple[int, list[int]]]:
    return lambda connection: sweep.unblock_next(connection, children)
