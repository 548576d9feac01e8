"""A server's own row of `worker` on one database: under it the server owns partitions, and is woken by producers.

It holds no leases: those are its remote workers'. Declared dead it registers anew; they stay what they are.
"""

from __future__ import annotations

import logging
import os
import socket
import threading

from penstock.clock import ticks
from penstock.engine.heartbeat import Heartbeat
from penstock.errors import PenstockError
from penstock.storage import Connection, Database
from penstock.storage.work import workers
from penstock.version import __version__

__all__ = ["ServerRow"]

log = logging.getLogger("penstock")


class ServerRow:
    """Used by any thread."""

    def __init__(self, database: Database, lease_seconds: float) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self._lock = threading.Lock()
        self._heartbeat: Heartbeat | None = None
        self._number = 0
        # The queues of which this program may take nothing: paused, or with rules that it does not know.
        self.withheld: frozenset[int] = frozenset()

    @property
    def must_rest(self) -> bool:
        """Whether this program is too old for the database by now: what runs may end, and nothing more is taken."""
        return self._heartbeat is not None and self._heartbeat.mismatch is not None

    def number(self) -> int:
        """Its number; where it has none, or was declared dead, it is registered anew."""
        with self._lock:
            if self._heartbeat is None or self._heartbeat.is_declared_dead:
                if self._heartbeat is not None:
                    log.warning("the server was silent for too long: its partitions went to others, its workers stay")
                    self._heartbeat.end()
                self._register()
            return self._number

    def has_server_changed(self) -> bool:
        """Whether another database server answers than when this was last asked."""
        return self._heartbeat is not None and self._heartbeat.has_server_changed()

    def close(self) -> None:
        """Leave."""
        with self._lock:
            if self._heartbeat is None:
                return
            self._heartbeat.stop()
            self._heartbeat = None
            try:
                self._database.run(lambda connection: workers.remove(connection, self._number), timeout=2.0)
            except PenstockError as error:
                log.warning("the server could not say that it left: %s", error)

    def _register(self) -> None:
        host, pid, registered_at = socket.gethostname(), os.getpid(), ticks()

        def register(connection: Connection) -> tuple[int, str | None]:
            number = workers.register(
                connection,
                name=f"server {host}:{pid}",
                host=host,
                pid=pid,
                version=__version__,
                concurrency=0,
                lease_seconds=self._lease_seconds,
                tasks=(),
            )
            return number, workers.begin(connection, number)

        number, server = self._database.run(register)
        self._number = number
        self._heartbeat = Heartbeat(
            self._database,
            self._lease_seconds,
            lambda connection: self._renew(connection, number),
            registered_at,
            server,
        )

    def _renew(self, connection: Connection, number: int) -> workers.Renewal | None:
        renewal = workers.renew(connection, number)
        self.withheld = frozenset(workers.withheld_queues(connection, number))
        return renewal
