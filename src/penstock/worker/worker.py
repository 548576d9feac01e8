"""A worker: runs the jobs of some queues in this process until it is told to stop, or there is nothing left to do.

Its parts are listed in `penstock.worker`.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from penstock.clock import system
from penstock.errors import PenstockError
from penstock.storage.connection.database import Database
from penstock.worker.database_worker import DatabaseWorker, Identity, Upkeep
from penstock.worker.end_log import EndLog
from penstock.worker.event_loop import EventLoop
from penstock.worker.hooks import Event, Hooks
from penstock.worker.idle_rounds import IdleRounds
from penstock.worker.queue_caps import QueueCaps
from penstock.worker.served_queues import ServedQueue
from penstock.worker.slot_pool import SlotPool
from penstock.worker.snapshot import WorkerSnapshot
from penstock.worker.threads import Threads
from penstock.worker.watchdog import Watchdog

__all__ = ["ServedDatabase", "Worked", "Worker"]

log = logging.getLogger("penstock")

# How often it is looked for databases that were added.
FIND_SECONDS = 2.0
# How long a database worker may take to leave: where its database is away, and where it answers.
HURRIED_SECONDS, PATIENT_SECONDS = 1.0, 15.0
# So many of the jobs that a stop waits for are named.
MOST_NAMED = 5


class Worked(NamedTuple):
    """What came of one call of `app.work`: attempts by their end, and the jobs of dead workers that upkeep rescued."""

    succeeded: int
    retried: int
    failed: int
    rescued: int


class ServedDatabase(NamedTuple):
    """A database to work on: its number as a shard, and the queues with the partitions that live there."""

    number: int
    database: Database
    served: Sequence[ServedQueue]


class Worker:
    """One call of `app.work`.

    `find_databases` gives the databases that are not among the numbers given: it is asked at the start, and then every
    few seconds for those that were added. `make_upkeep` makes the upkeep of one. `has_figures`: snapshots have the
    figures of its jobs. Once it is told to stop, handlers may take `grace_seconds` to end.
    """

    def __init__(
        self,
        find_databases: Callable[[Collection[int]], Sequence[ServedDatabase]],
        *,
        concurrency: int,
        lease_seconds: float,
        grace_seconds: float,
        version: str,
        hooks: Hooks,
        make_upkeep: Callable[[Database], Upkeep],
        has_figures: bool = False,
    ) -> None:
        self._find_databases = find_databases
        self._hooks = hooks
        self._end_log = EndLog()
        self._make_upkeep = make_upkeep
        self._has_figures = has_figures
        # Appended to by the upkeep of each database.
        self._rescued: list[int] = []
        self._identity = Identity(
            instance=str(uuid.uuid4()),
            host=socket.gethostname(),
            pid=os.getpid(),
            version=version,
            concurrency=concurrency,
            lease_seconds=lease_seconds,
        )
        self._event_loop = EventLoop(hooks)
        self._slot_pool = SlotPool(concurrency, self._event_loop.wake)
        # Has a coroutine run on the loop.
        self._submit = functools.partial(self._event_loop.submit, self._slot_pool)
        self._threads = Threads(self._slot_pool, hooks, self._submit)
        self._caps = QueueCaps()
        self._idle_rounds: IdleRounds | None = None
        self._database_workers: dict[int, DatabaseWorker] = {}
        self._database_threads: dict[DatabaseWorker, threading.Thread] = {}
        self._at_work: set[DatabaseWorker] = set()
        self._stop_at: float | None = None
        self._is_hurried = False
        self._problem: BaseException | None = None
        self._grace_seconds = grace_seconds
        self._watchdog = Watchdog(self._slot_pool, self._event_loop, grace_seconds)
        # Guards the database workers; notified when one has ended its work. The slot pool is closed when all have.
        self._changed = threading.Condition(threading.RLock())
        self._may_close = threading.Event()

    def run(self, *, until_idle: bool = False) -> None:
        """Work. Before it returns everything that ran is settled and everything else handed back."""
        # Async hooks need the loop, which ends with the pool: what is told later has to find another.
        with self._hooks.awaited_on(self._submit):
            are_told = self._work(until_idle=until_idle)
        self._slot_pool.close()
        self._threads.join()
        self._event_loop.join()
        self._close()
        self._end_log.close()
        if are_told:
            # Of what upkeep still rescued.
            self._hooks.wait_until_told(HURRIED_SECONDS)
        if self._problem is not None:
            raise self._problem

    def _work(self, *, until_idle: bool) -> bool:
        """Work until the slots are empty; whether hooks were told of all that ended."""
        if until_idle:
            self._idle_rounds = IdleRounds(self._wake)
        database_workers = [self._add_database_worker(found) for found in self._find_databases(())]
        if len(database_workers) == 1:
            # With a single database nothing can be worked on without it: the caller gets the error.
            database_workers[0].register()
        if any(task.is_async for each in database_workers for queue in each.served for task in queue.tasks.values()):
            self._event_loop.start(self._slot_pool)
        for each in database_workers:
            self._start(each)
        threading.Thread(target=self._find_added_databases, name="penstock-databases", daemon=True).start()
        self._wait_for_database_workers()
        is_hurried = self._is_hurried or self._slot_pool.is_loop_blocked
        return self._hooks.wait_until_told(HURRIED_SECONDS if is_hurried else PATIENT_SECONDS)

    def note_rescued(self, jobs: int) -> None:
        """By upkeep: so many jobs of dead workers are ready again."""
        self._rescued.append(jobs)
        self._hooks.tell(Event(name="rescued", jobs=jobs))

    def snapshot(self) -> WorkerSnapshot:
        """From any thread: how it stands."""
        pool = self._slot_pool
        return WorkerSnapshot(
            slots=pool.concurrency,
            slots_used=pool.running,
            left_behind=len(pool.left_behind),
            is_loop_blocked=pool.is_loop_blocked,
            processes=self._threads.processes,
            rescued=sum(self._rescued),
            databases=tuple(each.snapshot() for each in list(self._database_workers.values())),
        )

    def worked(self) -> Worked:
        """What came of it."""
        counts: Counter[str] = Counter()
        for each in self._database_workers.values():
            counts.update(each.counts)
        return Worked(counts["succeeded"], counts["retry"], counts["failed"], sum(self._rescued))

    def stop(self, *, may_hurry: bool = True, level: int = logging.INFO) -> None:
        """From any thread: end gently, and log at that level what is waited for. Asked again: at once, without waiting
        for handlers.
        """
        with self._changed:
            is_first = self._stop_at is None
            if self._stop_at is None:
                self._stop_at = system.monotonic() + self._grace_seconds
            elif may_hurry:
                self._stop_at = 0.0
                self._is_hurried = True
            for each in self._database_workers.values():
                each.stop(self._stop_at)
            self._changed.notify_all()
        if is_first and (running := self._running_jobs()):
            log.log(
                level,
                "stopping: for up to %g s the worker waits for %s: %s; told to stop once more, it does not wait",
                self._grace_seconds,
                "1 handler" if len(running) == 1 else f"{len(running)} handlers",
                ", ".join(running[:MOST_NAMED]) + ("" if len(running) <= MOST_NAMED else ", ..."),
            )

    def _running_jobs(self) -> list[str]:
        """What runs now, as it is told."""
        jobs = [slot.current for slot in list(self._slot_pool.slots)]
        return [f"{job.task.queue}/{job.task.name} (job {job.id})" for job in jobs if job is not None]

    def _hear_stop(self) -> None:
        """From any thread: somebody asked over the database that this worker end gently; of several each may say so."""
        log.info("this worker was asked to stop")
        self.stop(may_hurry=False)

    def _end_with(self, problem: PenstockError) -> None:
        """From any thread: end gently, and with this error."""
        if self._problem is None:
            log.error("%s", problem)
            self._problem = problem
            self.stop(may_hurry=False)

    def _add_database_worker(self, found: ServedDatabase) -> DatabaseWorker:
        each = DatabaseWorker(
            found.number,
            found.database,
            found.served,
            identity=self._identity,
            slot_pool=self._slot_pool,
            start_threads=self._threads.start,
            hooks=self._hooks,
            end_log=self._end_log,
            upkeep=self._make_upkeep(found.database),
            idle_rounds=self._idle_rounds,
            is_alone=lambda: len(self._database_workers) == 1,
            end_with=self._end_with,
            on_asked_to_stop=self._hear_stop,
            caps=self._caps,
            has_figures=self._has_figures,
        )
        self._database_workers[found.number] = each
        return each

    def _start(self, each: DatabaseWorker) -> None:
        with self._changed:
            if self._stop_at is not None:
                each.stop(self._stop_at)
            name = f"penstock-conductor-{each.number}"
            thread = threading.Thread(target=self._run_database_worker, args=(each,), name=name, daemon=True)
            self._database_threads[each] = thread
            self._at_work.add(each)
            thread.start()

    def _run_database_worker(self, each: DatabaseWorker) -> None:
        try:
            each.work()
        except BaseException as error:  # It goes to whoever called `run`, when the others have ended too.
            self._problem = self._problem or error
            self.stop(may_hurry=False)
        with self._changed:
            self._at_work.discard(each)
            self._changed.notify_all()
        self._may_close.wait()
        each.close()

    def _find_added_databases(self) -> None:
        while not self._may_close.wait(FIND_SECONDS):
            try:
                found = self._find_databases(set(self._database_workers))
            except PenstockError as error:
                log.debug("databases that were added could not be looked for: %s", error)
                continue
            with self._changed:
                for each in found:
                    if self._stop_at is None:
                        log.info("shard %d was added, and is worked on", each.number)
                        self._start(self._add_database_worker(each))

    def _wait_for_database_workers(self) -> None:
        """Wait until all have ended their work, but not for one whose database is away and keeps it."""
        while True:
            stuck = self._watchdog.look()
            if stuck is not None:
                self._end_with(stuck)
            with self._changed:
                if not self._at_work:
                    # No database that is found from now on is worked on.
                    self._stop_at = self._stop_at or system.monotonic()
                    return
                self._changed.wait(self._watchdog.patience)
                self._stop_silent()
                for each in [each for each in self._at_work if each.is_given_up(HURRIED_SECONDS)]:
                    log.warning("%s does not answer; the worker ends without it", each.database.breaker.label)
                    self._at_work.discard(each)

    def _stop_silent(self) -> None:
        if self._idle_rounds is None or not self._idle_rounds.may_end:
            return
        for each in self._at_work:
            if each.is_silent and not each.is_stopping:
                log.warning(
                    "%s does not answer, and all others are idle: the worker ends; what waits there was not looked at",
                    each.database.breaker.label,
                )
                each.stop(0.0)

    def _close(self) -> None:
        began_at = system.monotonic()
        self._may_close.set()
        for each, thread in self._database_threads.items():
            patience = HURRIED_SECONDS if each.is_away or each.database.breaker.is_down else PATIENT_SECONDS
            thread.join(max(began_at + patience - system.monotonic(), 0.0))

    def _wake(self) -> None:
        for each in list(self._database_workers.values()):
            each.wake()
