"""A worker's heartbeat: the engine's, and what each renewal brings along: which jobs are to stop, which queues are
paused, whether the worker is to end, whether this program has become too old for the database's functions. It takes
along the progress of jobs, and how many ended in the last minute.

A worker that renews while its conductor gets no answer would hold its jobs for ever. So the heartbeat pauses when the
conductor, whose connection was cut and made anew, has had no answer at all for a lease in which every renewal was
answered: then others take over. A conductor that is answered and waits, for a row that somebody has locked, say, is no
reason to pause: every worker would lose its jobs at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.clock import system, ticks
from penstock.engine.heartbeat import Heartbeat
from penstock.errors import SchemaMismatch
from penstock.storage.connection.database import Connection, Database
from penstock.storage.work import workers
from penstock.storage.work.workers import Ended
from penstock.worker.backlog import Backlog
from penstock.worker.last_minute import LastMinute

__all__ = ["WorkerHeartbeat"]

log = logging.getLogger("penstock")


class WorkerHeartbeat:
    """The heartbeat of one worker on one database; it begins again each time the worker registers.

    `wake` wakes the conductor when there is news. `unheard_since` tells since when the conductor has had no answer,
    `ended` what ended so far. `on_mismatch` is told, once, that this program is too old, and `on_asked_to_stop` that
    the worker is to end gently.
    """

    def __init__(
        self,
        database: Database,
        backlog: Backlog,
        lease_seconds: float,
        wake: Callable[[], None],
        unheard_since: Callable[[], float | None],
        ended: Callable[[], Ended],
        on_mismatch: Callable[[SchemaMismatch], None],
        on_asked_to_stop: Callable[[], None],
    ) -> None:
        self._database = database
        self._backlog = backlog
        self._lease_seconds = lease_seconds
        self._wake = wake
        self._unheard_since = unheard_since
        self._ended = ended
        self._last_minute = LastMinute(system.monotonic())
        # Whether it pauses though it would be answered.
        self._is_paused = False
        self._on_mismatch = on_mismatch
        self._on_asked_to_stop = on_asked_to_stop
        self._is_asked_to_stop = False
        self._is_outdated = False
        self._heartbeat: Heartbeat | None = None
        self._worker_id = 0
        self._progress: dict[int, tuple[float | None, str | None]] = {}
        # The queues of which nothing is taken; set by the heartbeat's thread.
        self.withheld: frozenset[int] = frozenset()

    @property
    def is_declared_dead(self) -> bool:
        """Whether the worker was declared dead, and has to register anew."""
        return self._heartbeat is not None and self._heartbeat.is_declared_dead

    @property
    def has_missed(self) -> bool:
        """Whether the last renewal was not answered, or not sent."""
        return self._is_paused or (self._heartbeat is not None and self._heartbeat.has_missed)

    def has_server_changed(self) -> bool:
        """Whether another server answers than when this was last asked."""
        return self._heartbeat is not None and self._heartbeat.has_server_changed()

    def start(self, worker_id: int, registered_at: int, server: str | None) -> None:
        """Renew the row of a worker that registered at this tick, and no other any more."""
        if self._heartbeat is not None:
            self._heartbeat.end()
        self._worker_id = worker_id
        self._backlog.valid_until = registered_at + int(self._lease_seconds * 1e9)
        self._heartbeat = Heartbeat(
            self._database,
            self._lease_seconds,
            lambda connection: self._renew(connection, worker_id),
            registered_at,
            server,
            purpose="heartbeat",
            must_pause=self._must_pause,
            on_news=self._wake,
        )

    def stop(self) -> None:
        """Renew no more."""
        if self._heartbeat is not None:
            self._heartbeat.stop()

    def progress(self, job_id: int, value: float | None, note: str | None) -> None:
        """Store a job's progress with the next renewal."""
        self._progress[job_id] = (value, note)

    def _must_pause(self) -> bool:
        """Whether the conductor has had no answer for a lease in which renewals were answered."""
        unheard_since = self._unheard_since()
        answered_since = 0.0 if self._heartbeat is None else self._heartbeat.answered_since
        is_paused = (
            unheard_since is not None
            and answered_since > 0
            and system.monotonic() - max(unheard_since, answered_since) > self._lease_seconds
        )
        if is_paused and not self._is_paused:
            log.error(
                "%s answers that the worker lives, but for %g s not on the connection that it claims and settles on: "
                "its jobs there go to other workers until it does",
                self._database.breaker.label,
                self._lease_seconds,
            )
        self._is_paused = is_paused
        return is_paused

    def _renew(self, connection: Connection, worker_id: int) -> workers.Renewal | None:
        sent_at = ticks()
        lately = self._last_minute.note(self._ended(), system.monotonic())
        renewal = workers.renew(connection, worker_id, lately)
        if worker_id != self._worker_id:
            # It has registered anew since.
            return renewal
        if renewal is None:
            self._backlog.valid_until = 0
            return None
        if renewal.mismatch is not None and not self._is_outdated:
            # It goes on renewing: what runs may end.
            self._is_outdated = True
            self._on_mismatch(renewal.mismatch)
        if renewal.is_asked_to_stop and not self._is_asked_to_stop:
            self._is_asked_to_stop = True
            self._on_asked_to_stop()
        was_invalid = self._backlog.valid_until < sent_at
        self._backlog.valid_until = sent_at + int(self._lease_seconds * 1e9)
        if was_invalid:
            self._backlog.take_back_bunches()
        asked = self._backlog.asked_to_stop = workers.asked_to_stop(connection, worker_id)
        for job in self._backlog.active():
            if job.id in asked and not job.is_cancelled:
                job.is_cancelled = True
                if job.interrupt is not None:
                    job.interrupt()
        withheld = workers.withheld_queues(connection, worker_id)
        if self.withheld != withheld.keys():
            for notice in (withheld[queue] for queue in withheld.keys() - self.withheld):
                if notice is not None:
                    log.error(notice)
            self.withheld = frozenset(withheld)
            self._wake()
        if self._progress:
            reports, self._progress = self._progress, {}
            workers.report_progress(connection, worker_id, [(job, *report) for job, report in reports.items()])
        return renewal
