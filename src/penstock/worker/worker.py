"""A worker: runs the jobs of some queues in this process until it is told to stop, or there is nothing left to do.

conductor   settles and claims, the one conversation about jobs with the database
line        jobs claimed and not started
threads     run plain handlers      lanes   run async ones      children   run handlers in processes
heart       keeps the worker alive in the eyes of the others
listener    hears producers
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.clock import system, ticks
from penstock.storage import workers
from penstock.storage.database import Connection, Database
from penstock.storage.health import divided_tasks
from penstock.worker.conductor import Conductor, DatabaseAway, Served
from penstock.worker.context import Workplace
from penstock.worker.heart import Heart
from penstock.worker.hooks import Hooks
from penstock.worker.lanes import Lanes
from penstock.worker.line import Line
from penstock.worker.listener import Listener
from penstock.worker.threads import Threads

__all__ = ["Sweeper", "Worked", "Worker"]

log = logging.getLogger("penstock")


class Sweeper(Protocol):
    """Upkeep, as a worker sees it."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def look_in(self, seconds: float) -> None: ...
    def sweep(self) -> None: ...


class Worked(NamedTuple):
    """What came of one call of `app.work`: attempts by their end, and the jobs of dead workers that upkeep rescued."""

    succeeded: int
    retried: int
    failed: int
    rescued: int


class Worker:
    """One call of `app.work`."""

    def __init__(
        self,
        database: Database,
        served: Sequence[Served],
        *,
        concurrency: int,
        lease_seconds: float,
        version: str,
        hooks: Hooks,
        sweeper: Sweeper,
        grace_seconds: float = 30.0,
    ) -> None:
        self._database = database
        self._served = list(served)
        self._concurrency = concurrency
        self._lease_seconds = lease_seconds
        self._version = version
        self._sweeper = sweeper
        self._grace_seconds = grace_seconds
        self._signal = threading.Event()
        self._stop_at: float | None = None
        self._must_register = False
        self._workplace = Workplace(database, "", self._report_progress)
        self._lanes = Lanes(self._workplace, hooks)
        self._line = Line(concurrency, self._lanes.wake, self._signal.set)
        self._threads = Threads(self._line, self._workplace, hooks)
        self._conductor = Conductor(
            database, self._workplace, self._line, self._served, hooks, self._threads.start, self._signal
        )
        self._conductor.on_due = sweeper.look_in
        self._heart = Heart(database, self._line, lease_seconds, self._declared_dead, self._note_paused)

    def run(self, *, until_idle: bool = False) -> None:
        """Work. Before it returns everything that ran is settled and everything else handed back."""
        self._register()
        listener = Listener(self._database, [queue.queue_id for queue in self._served], self._signal)
        if any(task.is_async for queue in self._served for task in queue.tasks.values()):
            self._lanes.start(self._line)
        listener.start()
        self._sweeper.start()
        try:
            self._work(until_idle)
        except DatabaseAway:
            log.warning("the database did not come back in time; what this worker held goes to other workers")
        finally:
            self._line.close()
            self._threads.join()
            self._lanes.join()
            self._sweeper.stop()
            listener.stop()
            self._heart.stop()
            self._leave()
            self._conductor.close()

    def worked(self, rescued: int) -> Worked:
        """What came of it."""
        counts = self._conductor.counts
        return Worked(counts["succeeded"], counts["retry"], counts["failed"], rescued)

    def stop(self, *, may_hurry: bool = True) -> None:
        """From any thread or signal handler: end gently. Asked again: at once, without waiting for handlers."""
        if self._stop_at is None:
            self._stop_at = system.monotonic() + self._grace_seconds
        elif may_hurry:
            self._stop_at = 0.0
        self._conductor.give_up_at = self._stop_at
        self._conductor.is_stopping = True
        self._signal.set()

    def _work(self, until_idle: bool) -> None:
        conductor = self._conductor
        has_waited = True
        while True:
            if self._must_register:
                self._must_register = False
                conductor.forget_everything()
                self._register()
            did_something = conductor.turn()
            if self._stop_at is not None:
                if not conductor.has_held_jobs and not self._line.done and not len(self._line):
                    return
                if system.monotonic() > self._stop_at:
                    log.warning("%d handlers did not end in time; their jobs go to other workers", self._line.running)
                    return
            elif until_idle and conductor.is_empty and not did_something:
                self._sweeper.sweep()
                if not conductor.has_work():
                    return
                if has_waited:
                    has_waited = False
                    conductor.look_again()
                    continue
            if not did_something or conductor.is_pacing:
                conductor.wait()
                has_waited = True

    def _register(self) -> None:
        host, pid = socket.gethostname(), os.getpid()
        registered_at = ticks()
        tasks = [(queue.queue_id, task) for queue in self._served for task in queue.tasks]

        def register(connection: Connection) -> int:
            return workers.register(
                connection,
                name=f"{host}:{pid}",
                host=host,
                pid=pid,
                version=self._version,
                concurrency=self._concurrency,
                lease_seconds=self._lease_seconds,
                tasks=tasks,
            )

        worker_id = self._database.run(register)
        self._workplace.worker_id = worker_id
        self._workplace.name = workers.full_name(f"{host}:{pid}", worker_id)
        self._heart.start(worker_id, registered_at)
        if any(queue.is_owned for queue in self._served):
            self._warn_of_divided_tasks()

    def _warn_of_divided_tasks(self) -> None:
        for each in self._database.run(lambda connection: divided_tasks(connection, self._workplace.worker_id)):
            log.warning(
                "queue %r: this worker does not know task %r, which worker %s knows, and that one does not know all of "
                "this one's: keys wait while their partition's owner does not know their next task. Let every worker "
                "of the queue know all its tasks",
                each.queue,
                each.task,
                each.other,
            )

    def _leave(self) -> None:
        try:
            self._database.run(lambda connection: workers.remove(connection, self._workplace.worker_id), timeout=2.0)
        except Exception as error:  # The others find out by themselves: this worker does not renew any more.
            log.warning("the worker could not say that it left: %s", error)

    def _declared_dead(self) -> None:
        self._must_register = True
        self._signal.set()

    def _note_paused(self, paused: set[int]) -> None:
        if paused != self._conductor.paused:
            self._conductor.paused = paused
            self._signal.set()

    def _report_progress(self, job_id: int, value: float | None, note: str | None) -> None:
        self._heart.progress(job_id, value, note)
