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
from collections.abc import Callable

from penstock.clock import system, ticks
from penstock.engine.heartbeat import Pulse
from penstock.errors import SchemaMismatch
from penstock.storage import workers
from penstock.storage.database import Connection, Database
from penstock.worker.backlog import Line

__all__ = ["Heart"]

log = logging.getLogger("penstock")


class Heart:
    """A pulse for each time the worker registers. `wake` calls the conductor to what the heart has heard."""

    def __init__(
        self,
        database: Database,
        line: Line,
        lease_seconds: float,
        wake: Callable[[], None],
        unheard_since: Callable[[], float | None],
        on_mismatch: Callable[[SchemaMismatch], None],
    ) -> None:
        self._database = database
        self._line = line
        self._lease_seconds = lease_seconds
        self._wake = wake
        self._unheard_since = unheard_since
        # Whether it stands still though it would be answered.
        self._is_still = False
        self._on_mismatch = on_mismatch
        self._is_outdated = False
        self._pulse: Pulse | None = None
        self._worker_id = 0
        self._progress: dict[int, tuple[float | None, str | None]] = {}
        # The queues that are paused; set by the pulse.
        self.paused: frozenset[int] = frozenset()

    @property
    def is_lost(self) -> bool:
        """Whether the worker was declared dead, and has to register anew."""
        return self._pulse is not None and self._pulse.is_lost

    def has_moved(self) -> bool:
        """Whether another server answers than when this was last asked."""
        return self._pulse is not None and self._pulse.has_moved()

    def start(self, worker_id: int, registered_at: int, server: str | None) -> None:
        """Begin to beat for a worker registered at this tick, and for no other any more."""
        if self._pulse is not None:
            self._pulse.end()
        self._worker_id = worker_id
        self._line.valid_until = registered_at + int(self._lease_seconds * 1e9)
        self._pulse = Pulse(
            self._database,
            self._lease_seconds,
            lambda connection: self._renew(connection, worker_id),
            registered_at,
            server,
            purpose="heart",
            must_pause=self._must_stand_still,
            on_news=self._wake,
        )

    def stop(self) -> None:
        """Beat no more."""
        if self._pulse is not None:
            self._pulse.stop()

    def progress(self, job_id: int, value: float | None, note: str | None) -> None:
        """Store a job's progress with the next beat."""
        self._progress[job_id] = (value, note)

    def _must_stand_still(self) -> bool:
        """Whether the conductor is not heard where the heart is."""
        unheard_since = self._unheard_since()
        answered_since = 0.0 if self._pulse is None else self._pulse.answered_since
        is_still = (
            unheard_since is not None
            and answered_since > 0
            and system.monotonic() - max(unheard_since, answered_since) > self._lease_seconds
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

    def _renew(self, connection: Connection, worker_id: int) -> workers.Renewal | None:
        sent_at = ticks()
        renewal = workers.renew(connection, worker_id)
        if worker_id != self._worker_id:
            # It has registered anew since.
            return renewal
        if renewal is None:
            self._line.valid_until = 0
            return None
        if renewal.mismatch is not None and not self._is_outdated:
            # What runs may end: it is renewed until then.
            self._is_outdated = True
            self._on_mismatch(renewal.mismatch)
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
        paused = frozenset(workers.paused_queues(connection))
        if paused != self.paused:
            self.paused = paused
            self._wake()
        if self._progress:
            reports, self._progress = self._progress, {}
            workers.report_progress(connection, worker_id, [(job, *report) for job, report in reports.items()])
        return renewal
