"""The heart: renews the worker's one row, and brings back who wants what stopped.

The lease is counted from when a renewal was *sent*, on this machine's own clock: past it nothing new is started,
whatever the network does. A renewal that finds no row means the worker was declared dead. Each also hears how old a
program may be for the functions that the database has by now; one that is too old ends as if it was told to stop.

A worker whose heart beats while its conductor cannot be heard would hold its jobs for ever. So the heart stops where
the conductor, whose connection was cut and made anew, has had no answer at all for a lease in which the heart had them:
then others take over. A conductor that is answered and waits, for a lock that somebody holds, say, is no reason: every
worker would lose its jobs at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.clock import system, ticks
from penstock.errors import SchemaMismatch
from penstock.storage import workers
from penstock.storage.database import Connection, Database, is_lost, with_remedy
from penstock.worker.line import Line
from penstock.worker.rarely import Rarely

__all__ = ["Heart"]

log = logging.getLogger("penstock")


class Heart:
    """A thread with a connection of its own."""

    def __init__(
        self,
        database: Database,
        line: Line,
        lease_seconds: float,
        on_dead: Callable[[], None],
        on_paused: Callable[[set[int]], None],
        unheard_since: Callable[[], float | None],
        on_server: Callable[[str], None],
        on_mismatch: Callable[[SchemaMismatch], None],
    ) -> None:
        self._database = database
        self._line = line
        self._lease_seconds = lease_seconds
        self._on_dead = on_dead
        self._on_paused = on_paused
        self._unheard_since = unheard_since
        # Since when every beat was answered, and whether it stands still though they would be.
        self._answered_since = 0.0
        self._is_still = False
        self._on_server = on_server
        self._on_mismatch = on_mismatch
        self._is_outdated = False
        self._rarely = Rarely(log)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._progress: dict[int, tuple[float | None, str | None]] = {}
        self.worker_id = 0

    def start(self, worker_id: int, registered_at: int) -> None:
        """Begin to beat for a worker registered at this tick."""
        self.worker_id = worker_id
        self._line.valid_until = registered_at + int(self._lease_seconds * 1e9)
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="penstock-heart", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Beat no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def progress(self, job_id: int, value: float | None, note: str | None) -> None:
        """Store a job's progress with the next beat."""
        self._progress[job_id] = (value, note)

    def _beat(self) -> None:
        interval = min(1.0, self._lease_seconds / 4)
        connection: Connection | None = None
        while not self._stop.wait(interval):
            if self._must_stand_still():
                continue
            began_at = system.monotonic()
            try:
                connection = connection or self._database.connect("heart", carries_lease=True)
                self._renew(connection)
                self._answered_since = self._answered_since or began_at
            except Exception as error:  # Whatever it is, a heart that stopped would cost every job the worker holds.
                self._answered_since = 0.0
                if is_lost(error):
                    log.debug("the heart missed a beat: %s", error)
                else:
                    self._rarely.warning("the heart missed a beat: %s", with_remedy(error))
                if connection is not None:
                    connection.close()
                    connection = None
        if connection is not None:
            connection.close()

    def _must_stand_still(self) -> bool:
        """Whether the conductor is not heard where the heart is."""
        unheard_since = self._unheard_since()
        is_still = (
            unheard_since is not None
            and self._answered_since > 0
            and system.monotonic() - max(unheard_since, self._answered_since) > self._lease_seconds
        )
        if is_still and not self._is_still:
            log.error(
                "%s answers that the worker lives, but for %g s not on the connection that it claims and settles on: "
                "its jobs there go to other workers until it does",
                self._database.breaker.label,
                self._lease_seconds,
            )
        self._is_still = is_still
        return is_still

    def _renew(self, connection: Connection) -> None:
        worker_id = self.worker_id
        sent_at = ticks()
        renewal = workers.renew(connection, worker_id)
        if renewal is None:
            if worker_id == self.worker_id:
                self._line.valid_until = 0
                self._on_dead()
            return
        if renewal.mismatch is not None and not self._is_outdated:
            # What runs may end: it is renewed until then.
            self._is_outdated = True
            self._on_mismatch(renewal.mismatch)
        self._on_server(renewal.server)
        was_invalid = self._line.valid_until < sent_at
        self._line.valid_until = sent_at + int(self._lease_seconds * 1e9)
        if was_invalid:
            self._line.prod()
        asked = self._line.asked_to_stop = workers.asked_to_stop(connection, worker_id)
        for job in self._line.active():
            if job.id in asked and not job.is_cancelled:
                job.is_cancelled = True
                if job.interrupt is not None:
                    job.interrupt()
        self._on_paused(workers.paused_queues(connection))
        if self._progress:
            reports, self._progress = self._progress, {}
            workers.report_progress(connection, worker_id, [(job, *report) for job, report in reports.items()])
