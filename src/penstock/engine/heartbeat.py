"""The heartbeat: renews the row of a holder of leases, in a thread of its own, until it is stopped or the holder dead.

The lease is counted from when a renewal was *sent*, on this machine's own clock: past it nothing is started, whatever
the network does. A renewal that finds no row means that the holder was declared dead. Each also hears how old a program
may be for the functions that the database has by now.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.clock import system, ticks
from penstock.engine.throttled_log import ThrottledLog
from penstock.errors import SchemaMismatch
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import is_lost, with_remedy
from penstock.storage.work.workers import Renewal

__all__ = ["Heartbeat"]

log = logging.getLogger("penstock")


class Heartbeat:
    """A thread with a connection of its own. `renew` returns None where the holder is dead.

    `purpose` is what thread and connection are called. `must_pause`: whether not to renew this time. `on_news` is
    called after a renewal by which the holder is dead, or another server answered.
    """

    def __init__(
        self,
        database: Database,
        lease_seconds: float,
        renew: Callable[[Connection], Renewal | None],
        registered_at: int,
        server: str | None = None,
        *,
        purpose: str = "heartbeat",
        must_pause: Callable[[], bool] = lambda: False,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self._renew = renew
        self._purpose = purpose
        self._must_pause = must_pause
        self._on_news = on_news
        self._valid_until = registered_at + int(lease_seconds * 1e9)
        self._stop = threading.Event()
        self._renewed = threading.Condition()
        # Whether the holder was declared dead: its row is gone, and with it every lease.
        self.is_declared_dead = False
        # Why this program may take no more: the database has functions for which it is too old.
        self.mismatch: SchemaMismatch | None = None
        # Since when every renewal was answered; 0 where the last was not.
        self.answered_since = 0.0
        # Whether the last renewal was not answered.
        self.has_missed = False
        # Which server answered last; and whether that changed since `has_server_changed` was last asked: what is held
        # has to be looked up then.
        self._server = server
        self._has_server_changed = False
        self._throttled_log = ThrottledLog(log)
        self._thread = threading.Thread(target=self._renew_until_stopped, name=f"penstock-{purpose}", daemon=True)
        self._thread.start()

    @property
    def is_valid(self) -> bool:
        """Whether the holder certainly has its leases."""
        return not self.is_declared_dead and ticks() < self._valid_until

    def wait_until_valid(self) -> bool:
        """Wait for a renewal where the last is too old; False: the holder was declared dead."""
        with self._renewed:
            while not self.is_valid and not self.is_declared_dead:
                self._renewed.wait(1.0)
        return not self.is_declared_dead

    def has_server_changed(self) -> bool:
        """Whether another server answers than when this was last asked."""
        if not self._has_server_changed:
            return False
        with self._renewed:
            self._has_server_changed = False
        return True

    def end(self) -> None:
        """Renew no more, from any thread; the last renewal may still be under way."""
        self._stop.set()

    def stop(self) -> None:
        """Renew no more, and wait for the last renewal."""
        self.end()
        self._thread.join()

    def _renew_until_stopped(self) -> None:
        interval = min(1.0, self._lease_seconds / 4)
        connection: Connection | None = None
        while not self._stop.wait(interval) and not self.is_declared_dead:
            if self._must_pause():
                continue
            began_at, sent_at = system.monotonic(), ticks()
            try:
                connection = connection or self._database.connect(self._purpose, carries_lease=True)
                renewal = self._renew(connection)
            except Exception as error:  # Whatever it is: a heartbeat that stopped would cost every job that is held.
                self.answered_since, self.has_missed = 0.0, True
                if is_lost(error):
                    log.debug("the %s missed a beat: %s", self._purpose, error)
                else:
                    self._throttled_log.warning("the %s missed a beat: %s", self._purpose, with_remedy(error))
                if connection is not None:
                    connection.close()
                    connection = None
                continue
            self._note(renewal, began_at, sent_at)
        if connection is not None:
            connection.close()

    def _note(self, renewal: Renewal | None, began_at: float, sent_at: int) -> None:
        server = None if renewal is None else renewal.server
        with self._renewed:
            self.mismatch = None if renewal is None else renewal.mismatch
            self.answered_since, self.has_missed = self.answered_since or began_at, False
            self.is_declared_dead = renewal is None
            is_another = self._server not in (None, server)
            self._has_server_changed |= is_another
            self._server = server
            self._valid_until = sent_at + int(self._lease_seconds * 1e9)
            self._renewed.notify_all()
        if is_another or self.is_declared_dead:
            self._on_news()
