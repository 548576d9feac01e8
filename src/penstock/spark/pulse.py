"""The pulse: renews the row of a worker that Spark runs, while a handler or a micro-batch keeps its thread.

The lease is counted from when a renewal was sent, on this machine's own clock: past it nothing is started, whatever the
network does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.clock import ticks
from penstock.errors import SchemaMismatch
from penstock.storage.database import Connection, Database, is_lost, with_remedy
from penstock.storage.workers import Renewal

__all__ = ["Pulse"]

log = logging.getLogger("penstock")


class Pulse:
    """A thread with a connection of its own. `renew` returns None where the worker is dead there."""

    def __init__(
        self,
        database: Database,
        lease_seconds: float,
        renew: Callable[[Connection], Renewal | None],
        registered_at: int,
        server: str | None = None,
    ) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self._renew = renew
        self._valid_until = registered_at + int(lease_seconds * 1e9)
        self._stop = threading.Event()
        self._beaten = threading.Condition()
        self.is_lost = False
        # Why this program may take no more: the database has functions for which it is too old.
        self.mismatch: SchemaMismatch | None = None
        # Which server heard it last, and whether that was another before: then who holds what has to be looked up.
        self._server = server
        self._has_moved = False
        self._thread = threading.Thread(target=self._beat, name="penstock-pulse", daemon=True)
        self._thread.start()

    @property
    def is_valid(self) -> bool:
        """Whether what the worker holds is certainly its own."""
        return not self.is_lost and ticks() < self._valid_until

    def wait_until_valid(self) -> bool:
        """Wait for a renewal where the last is too old; False: the worker was declared dead."""
        with self._beaten:
            while not self.is_valid and not self.is_lost:
                self._beaten.wait(1.0)
        return not self.is_lost

    def has_moved(self) -> bool:
        """Whether another server answers than when this was last asked."""
        with self._beaten:
            has_moved, self._has_moved = self._has_moved, False
        return has_moved

    def stop(self) -> None:
        """Beat no more."""
        self._stop.set()
        self._thread.join()

    def _beat(self) -> None:
        interval = min(1.0, self._lease_seconds / 4)
        connection: Connection | None = None
        while not self._stop.wait(interval) and not self.is_lost:
            sent_at = ticks()
            try:
                connection = connection or self._database.connect("pulse", carries_lease=True)
                renewal = self._renew(connection)
            except Exception as error:  # Whatever it is, a pulse that stopped would cost every job that is held.
                level = logging.DEBUG if is_lost(error) else logging.WARNING
                log.log(level, "the pulse missed a beat: %s", with_remedy(error))
                if connection is not None:
                    connection.close()
                    connection = None
                continue
            server = None if renewal is None else renewal.server
            with self._beaten:
                self.is_lost = renewal is None
                self.mismatch = None if renewal is None else renewal.mismatch
                self._has_moved |= self._server not in (None, server)
                self._server = server
                self._valid_until = sent_at + int(self._lease_seconds * 1e9)
                self._beaten.notify_all()
        if connection is not None:
            connection.close()
