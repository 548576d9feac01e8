"""The calls of `app.work` that are under way, and what each of them needs: signals, imports, upkeep, a worker."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Collection, Mapping, Sequence

from penstock.app.access import Access
from penstock.app.declarations import ServedNames, checked_caps
from penstock.app.signals import Signals, StoppedEarly
from penstock.clock import system
from penstock.forking import renew_in_children
from penstock.upkeep import SharedUpkeep, Upkeep
from penstock.version import __version__
from penstock.worker import (
    Hooks,
    ServedDatabase,
    Worked,
    Worker,
    WorkerSnapshot,
    check_middleware,
    refuse_in_main_import,
)

__all__ = ["Workers"]

log = logging.getLogger("penstock")


class Workers:
    """The workers of one app in this process."""

    def __init__(
        self, access: Access, imports: Sequence[str], lease_seconds: float, retention: Mapping[str, float]
    ) -> None:
        self._access = access
        self._imports = imports
        self._lease_seconds = lease_seconds
        self._retention = retention
        self.hooks = Hooks()
        # Whether workers that begin from now on keep the figures of their jobs, for metrics.
        self.has_figures = False
        self._workers: list[Worker] = []
        self._lock = threading.Lock()
        renew_in_children(self, Workers._renew_after_fork)

    def _renew_after_fork(self) -> None:
        """In a forked child: no worker of this app runs here."""
        self._lock = threading.Lock()
        self._workers = []

    def work(self, queues: ServedNames, concurrency: int, *, until_idle: bool, grace_seconds: float) -> Worked:
        """Run a worker until it ends; what came of it."""
        refuse_in_main_import("app.work(...)")
        try:
            with Signals() as signals:
                return self._work(queues, concurrency, until_idle, grace_seconds, signals)
        except StoppedEarly:
            return Worked(0, 0, 0, 0)

    def _check_tasks(self, queues: ServedNames) -> None:
        declarations = self._access.declarations
        names = declarations.served_names(queues)
        tasks = [task for name in names for task in declarations.tasks[name].values()]
        check_middleware(tasks)
        if not tasks:
            log.warning(
                "this worker runs no job: the app declares no task for queue %s. Import the modules that declare them, "
                "or name them in App(imports=['shop.tasks'])",
                ", ".join(map(repr, names)),
            )

    def stop(self, *, may_hurry: bool = True) -> None:
        """End all of them gently, from any thread; without waiting for handlers where they were stopped before."""
        with self._lock:
            workers = list(self._workers)
        for worker in workers:
            worker.stop(may_hurry=may_hurry)

    def snapshots(self) -> list[WorkerSnapshot]:
        """From any thread: how those stand that are under way."""
        with self._lock:
            workers = list(self._workers)
        return [worker.snapshot() for worker in workers]

    def _work(
        self,
        queues: ServedNames,
        concurrency: int,
        until_idle: bool,
        grace_seconds: float,
        signals: Signals,
    ) -> Worked:
        access = self._access

        def find_databases(known: Collection[int]) -> list[ServedDatabase]:
            return [
                ServedDatabase(database.shard, database, access.declarations.served(queues, database.shard))
                for database in access.databases
                if database.shard not in known
            ]

        worker = Worker(
            find_databases,
            concurrency=concurrency,
            lease_seconds=self._lease_seconds,
            grace_seconds=grace_seconds,
            version=__version__,
            hooks=self.hooks,
            make_upkeep=lambda database: Upkeep(database, self._retention, worker.note_rescued, shared),
            has_figures=self.has_figures,
        )
        # Before anything that takes time: whoever stops the app now means this worker too.
        with self._lock:
            self._workers.append(worker)
        try:
            for module in self._imports:
                importlib.import_module(module)
            self._check_tasks(queues)
            access.create_embedded()
            shared = SharedUpkeep(access.databases, [access.connecting.learn, access.declarations.write_rest])
            shared.start()
            try:
                signals.stop(worker)
                caps = checked_caps(queues)
                log.info(
                    "working on %s, %d at a time, database %s",
                    ", ".join(
                        f"{name} (at most {caps[name]})" if name in caps else name
                        for name in access.declarations.served_names(queues)
                    ),
                    concurrency,
                    " ".join(database.address for database in access.databases),
                )
                started_at = system.monotonic()
                worker.run(until_idle=until_idle)
                counts = worker.worked()._asdict()
                log.info(
                    "stopped after %.1f s: %s",
                    system.monotonic() - started_at,
                    ", ".join(f"{count} {name}" for name, count in counts.items()),
                )
            finally:
                shared.stop()
        finally:
            with self._lock:
                self._workers.remove(worker)
        return worker.worked()
