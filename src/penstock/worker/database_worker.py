"""A database worker: what one worker does with one database. It registers there, settles and takes jobs, renews its
row, listens to producers and does upkeep.

Each runs in a thread of its own and waits for its own database only; what the database workers of a worker share, the
slots and whatever runs in them, waits for none. A database that is away is tried until it is back, at the start too; a
worker that was declared dead there meanwhile registers anew.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.clock import system, ticks
from penstock.engine.conversation import Holder
from penstock.engine.throttled_log import ThrottledLog
from penstock.errors import PenstockError, SchemaMismatch
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import stop_error
from penstock.storage.inspect.health import divided_tasks
from penstock.storage.work import workers
from penstock.upkeep.queue_times import QueueTimes
from penstock.worker.backlog import Backlog
from penstock.worker.conductor import Conductor, DatabaseAway
from penstock.worker.context import Registration
from penstock.worker.end_log import EndLog
from penstock.worker.hooks import Hooks
from penstock.worker.idle_rounds import IdleRounds
from penstock.worker.job_figures import JobFigures
from penstock.worker.listener import Listener
from penstock.worker.queue_caps import QueueCaps
from penstock.worker.reporting import Reports
from penstock.worker.served_queues import ServedQueue
from penstock.worker.settled_times import SettledTimes
from penstock.worker.slot_pool import SlotPool
from penstock.worker.snapshot import DatabaseSnapshot
from penstock.worker.stop_request import StopRequest
from penstock.worker.worker_heartbeat import WorkerHeartbeat

__all__ = ["DatabaseWorker", "Identity", "Upkeep"]

log = logging.getLogger("penstock")

# A database that has not answered for so long is away: a worker that ends when all is done does not wait for it.
AWAY_SECONDS = 3.0
REGISTER_SECONDS = 2.0
AGAIN_SECONDS = 1.0


class Upkeep(Protocol):
    """What keeps house on one database, as a worker sees it."""

    @property
    def times(self) -> QueueTimes: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def look_in(self, seconds: float) -> None: ...
    def unblock_later(self, children: Sequence[int]) -> None: ...
    def sweep(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a worker is, on every database it serves. `instance` is random: no other worker has it."""

    instance: str
    host: str
    pid: int
    version: str
    concurrency: int
    lease_seconds: float


class DatabaseWorker:
    """Used by its own thread, but for what says otherwise."""

    def __init__(
        self,
        number: int,
        database: Database,
        served: Sequence[ServedQueue],
        *,
        identity: Identity,
        slot_pool: SlotPool,
        start_threads: Callable[[int], None],
        hooks: Hooks,
        end_log: EndLog,
        upkeep: Upkeep,
        idle_rounds: IdleRounds | None,
        is_alone: Callable[[], bool],
        end_with: Callable[[PenstockError], None],
        on_asked_to_stop: Callable[[], None],
        caps: QueueCaps,
        has_figures: bool = False,
    ) -> None:
        self.number = number
        self.database = database
        self.served = list(served)
        self._identity = identity
        self._upkeep = upkeep
        self._idle_rounds = idle_rounds
        self._is_alone = is_alone
        self._signal = threading.Event()
        self._stop_request = StopRequest()
        self._must_register = True
        self._throttled_log = ThrottledLog(log)
        # Since when there was no turn, before the first and after a failure; None while there are turns.
        self._absent_since: float | None = system.monotonic()
        # When its thread last began a turn, or another try to register; None while it need not.
        self._turned_at: float | None = None
        self._registration = Registration(database, "", self._report_progress, self._stop_request)
        self.backlog = Backlog(slot_pool, self._registration, self._signal.set, end_with)
        tasks = [task for queue in self.served for task in queue.tasks.values()]
        self._figures = JobFigures(tasks) if has_figures else None
        times = SettledTimes(upkeep.times, {queue.name: queue.queue_id for queue in self.served})
        self._reports = Reports(hooks, end_log, upkeep.look_in, upkeep.unblock_later, times, self._figures)
        self._heartbeat = WorkerHeartbeat(
            database,
            self.backlog,
            identity.lease_seconds,
            self._signal.set,
            lambda: self._conductor.link.unheard_since,
            lambda: self._reports.ended,
            end_with,
            on_asked_to_stop,
        )
        self._conductor = Conductor(
            database,
            self.backlog,
            self.served,
            reports=self._reports,
            heartbeat=self._heartbeat,
            stop_request=self._stop_request,
            start_threads=start_threads,
            signal=self._signal,
            caps=caps.join(self.served, self._signal.set, lambda: self.backlog.running),
        )
        self._listener = Listener(database, [queue.queue_id for queue in self.served], self._conductor)
        if idle_rounds is not None:
            idle_rounds.join(self, lambda: self.is_silent)

    @property
    def counts(self) -> dict[str, int]:
        """What ended here so far, by its end."""
        return dict(self._reports.counts)

    @property
    def is_away(self) -> bool:
        """From any thread: whether for some time the database has answered neither the conductor nor the heartbeat."""
        if (absent_since := self._absent_since) is not None:
            return system.monotonic() - absent_since > AWAY_SECONDS
        heard_at = self.backlog.valid_until - int(self._identity.lease_seconds * 1e9)
        return self._conductor.link.asking_seconds > AWAY_SECONDS and ticks() - heard_at > AWAY_SECONDS * 1e9

    @property
    def has_unsettled_jobs(self) -> bool:
        """From any thread: whether it has jobs that run, or whose end is not written."""
        return self._conductor.has_unsettled

    @property
    def is_silent(self) -> bool:
        """From any thread: whether the database is away and nothing runs here that could enqueue elsewhere."""
        return self.is_away and not self.backlog.running

    @property
    def is_stopping(self) -> bool:
        return self._stop_request.is_made

    def snapshot(self) -> DatabaseSnapshot:
        """From any thread: how it stands."""
        return DatabaseSnapshot(
            number=self.number,
            unready=self._unready(),
            stuck_seconds=self._stuck_seconds(),
            backlog=self.backlog.unstarted,
            leases_lost=self._conductor.leases_lost,
            figures=() if self._figures is None else tuple(self._figures),
        )

    def _unready(self) -> str | None:
        """Why it cannot claim."""
        if self._stop_request.is_made:
            return "the worker is stopping"
        if self._must_register or self._heartbeat.is_declared_dead:
            return "the worker is not registered"
        if ticks() >= self.backlog.valid_until:
            return "the worker's lease has run out"
        if self._heartbeat.has_missed or self._conductor.link.unheard_since is not None:
            return "the database does not answer"
        return None

    def _stuck_seconds(self) -> float:
        """For how long its thread has not turned, though it waits for nothing; 0 where that is less than a lease. What
        it asks of the database, and what it asks while that does not answer, may take as long as it likes.
        """
        if self._conductor.link.asking_seconds > 0 or self._heartbeat.has_missed or self.database.breaker.is_down:
            return 0.0
        turned_at = self._turned_at
        seconds = 0.0 if turned_at is None else system.monotonic() - turned_at
        return seconds if seconds > self._identity.lease_seconds else 0.0

    def is_given_up(self, seconds: float) -> bool:
        """From any thread: whether it was told to stop, and for so long now nothing but its database has kept it."""
        stop_request = self._stop_request
        waited = stop_request.seconds_since_grace() if self.has_unsettled_jobs else stop_request.seconds_since_made()
        return waited > seconds and self.is_away

    def register(self, timeout: float | None = None) -> None:
        """Enter the worker here, once; raises where the database does not answer in that time."""
        identity = self._identity
        registered_at = ticks()
        name = f"{identity.host}:{identity.pid}"
        tasks = [(queue.queue_id, task) for queue in self.served for task in queue.tasks]
        timeouts = {
            (queue.queue_id, name): math.inf if task.timeout is None else task.timeout
            for queue in self.served
            for name, task in queue.tasks.items()
        }

        batches = {
            (queue.queue_id, name): task.batch
            for queue in self.served
            for name, task in queue.tasks.items()
            if task.batch is not None
        }

        def register(connection: Connection) -> tuple[int, str | None]:
            worker = workers.register(
                connection,
                name=name,
                instance=identity.instance,
                host=identity.host,
                pid=identity.pid,
                version=identity.version,
                concurrency=identity.concurrency,
                lease_seconds=identity.lease_seconds,
                tasks=tasks,
                timeouts=timeouts,
                batches=batches,
            )
            return worker, workers.begin(connection, worker)

        worker_id, server = self.database.run(register, timeout=timeout)
        self._registration.worker_id = worker_id
        self._registration.name = workers.full_name(name, worker_id, identity.instance)
        self._conductor.begin(Holder(worker_id, self._registration.name))
        self._heartbeat.start(worker_id, registered_at, server)
        self._must_register = False
        if any(queue.is_owned for queue in self.served):
            self._warn_of_divided_tasks()

    def work(self) -> None:
        """Work until it is told to stop, or everybody is idle."""
        self._listener.start()
        self._upkeep.start()
        while True:
            try:
                return self._work()
            except DatabaseAway:
                if self.has_unsettled_jobs:
                    log.warning(
                        "%s did not come back in time; what this worker held goes to other workers",
                        self.database.breaker.label,
                    )
                return None
            except SchemaMismatch:
                raise
            except Exception as error:
                explained = stop_error(error, self.database.breaker.label)
                if self._is_alone() or self._stop_request.is_made:
                    if explained is not None:
                        raise explained from error
                    raise
                if explained is not None:
                    self._throttled_log.warning("%s; it is tried again", explained)
                else:
                    self._throttled_log.warning(
                        "%s cannot be worked on, and is tried again", self.database.breaker.label, exc_info=error
                    )
            finally:
                self._turned_at = None
            # The worker goes on with its other databases meanwhile.
            self._must_register = True
            self._absent_since = self._absent_since or system.monotonic()
            self._conductor.close()
            # Set by whatever happened here before: only a stop must not wait.
            self._signal.clear()
            if not self._stop_request.is_made:
                self._signal.wait(AGAIN_SECONDS)

    def stop(self, at: float) -> None:
        """From any thread: end gently, and at that monotonic time without waiting any more."""
        self._stop_request.make(at)
        self._signal.set()

    def wake(self) -> None:
        """From any thread: look again."""
        self._signal.set()

    def close(self) -> None:
        """Leave, and give everything back."""
        self.backlog.split_leases.stop()
        self._upkeep.stop()
        self._listener.stop()
        self._heartbeat.stop()
        self._leave()
        self._conductor.close()

    def _work(self) -> None:
        conductor, idle_rounds = self._conductor, self._idle_rounds
        has_waited = True
        while True:
            self._turned_at = system.monotonic()
            if self._must_register or self._heartbeat.is_declared_dead:
                conductor.lose_everything()
                self._register()
            began_in = 0 if idle_rounds is None else idle_rounds.round
            did_something = conductor.turn()
            self._absent_since = None
            if self._stop_request.is_made:
                if not self.has_unsettled_jobs and not len(self.backlog):
                    return
                if self._stop_request.is_grace_over:
                    log.warning("%s to another worker", _describe_rest(self.backlog.running))
                    return
            elif idle_rounds is not None:
                if did_something or not conductor.is_empty:
                    idle_rounds.note_busy()
                elif self._is_idle():
                    if idle_rounds.note_idle(self, began_in):
                        return
                else:
                    idle_rounds.note_busy()
                    if has_waited:
                        has_waited = False
                        conductor.look_again()
                        continue
            # Who ends when all is done has to see a turn that does nothing.
            if not did_something or conductor.is_pacing or (conductor.is_exhausted and idle_rounds is None):
                conductor.wait()
                has_waited = True

    def _is_idle(self) -> bool:
        # A sweep takes as long as there is to do.
        self._turned_at = None
        return self._upkeep.sweep() and not self._conductor.has_work()

    def _register(self) -> None:
        """Enter the worker, however long the database is away."""
        self._absent_since = self._absent_since or system.monotonic()
        has_warned = False
        while True:
            self._turned_at = system.monotonic()
            if self._stop_request.is_made:
                raise DatabaseAway
            try:
                return self.register(REGISTER_SECONDS)
            except SchemaMismatch:
                raise
            except PenstockError as error:
                log.log(logging.DEBUG if has_warned else logging.WARNING, "%s", error)
                has_warned = True
            self._signal.wait(AGAIN_SECONDS)
            self._signal.clear()

    def _warn_of_divided_tasks(self) -> None:
        for each in self.database.run(lambda connection: divided_tasks(connection, self._registration.worker_id)):
            log.warning(
                "queue %r: this worker does not know task %r, which worker %s knows, and that one does not know all of "
                "this one's: keys wait while their partition's owner does not know their next task. Let every worker "
                "of the queue know all its tasks",
                each.queue,
                each.task,
                each.other,
            )

    def _leave(self) -> None:
        if not self._registration.worker_id:
            return
        try:
            self.database.run(lambda connection: workers.remove(connection, self._registration.worker_id), timeout=2.0)
        except Exception as error:  # The others find out by themselves: this worker does not renew any more.
            log.warning("the worker could not say that it left: %s", error)

    def _report_progress(self, job_id: int, value: float | None, note: str | None) -> None:
        self._heartbeat.progress(job_id, value, note)


def _describe_rest(running: int) -> str:
    """What a worker leaves behind whose grace is over."""
    if running == 0:
        return "the end of what ran was not written in time; its jobs go"
    if running == 1:
        return "1 handler did not end in time; its job goes"
    return f"{running} handlers did not end in time; their jobs go"
