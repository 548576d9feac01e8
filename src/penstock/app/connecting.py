"""From what a user wrote to a database that is ready: its URL or an embedded server, its schema, its durability."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from penstock import embedded
from penstock.clock import system
from penstock.errors import PenstockError
from penstock.storage import Database
from penstock.storage.database import checked_url
from penstock.storage.migrate import check_schema, migrate

__all__ = ["Connecting"]

log = logging.getLogger("penstock")


class Connecting:
    """Opens the database when it is first needed, once, whichever thread comes first."""

    def __init__(self, url: str | None, *, pool_size: int, request_timeout: float, accept_data_loss: bool) -> None:
        given = url if url is not None else os.environ.get("PENSTOCK_URL") or None
        self._given = None if given is None else checked_url(given)
        # Fixed here: a program that changes its folder later keeps its server.
        self._folder = Path.cwd() / ".penstock"
        self._pool_size = pool_size
        self._request_timeout = request_timeout
        self._accept_data_loss = accept_data_loss
        self._server: embedded.Server | None = None
        self._database: Database | None = None
        self._is_checked = False
        self._lock = threading.RLock()

    @property
    def is_embedded(self) -> bool:
        return self._given is None

    @property
    def url(self) -> str:
        """The database's URL; reading it starts an embedded server."""
        return self._given if self._given is not None else self._started().url

    def database(self) -> Database:
        """The database, with a schema this code fits."""
        if self._is_checked and self._database is not None:
            return self._database
        with self._lock:
            database = self._opened()
            if not self._is_checked:
                self._refuse_data_loss(database)
                if self.is_embedded:
                    database.run(migrate)
                else:
                    database.run(check_schema)
                self._is_checked = True
            return database

    def migrate(self) -> list[str]:
        """Bring the schema up to date; what was applied."""
        with self._lock:
            database = self._opened()
            self._refuse_data_loss(database)
            applied = database.run(migrate)
            self._is_checked = True
            return applied

    def unchecked(self) -> Database:
        """The database as it is, for those who look what is wrong with it."""
        with self._lock:
            return self._opened()

    def close(self) -> None:
        """Give everything back."""
        with self._lock:
            database, self._database = self._database, None
            server, self._server = self._server, None
            self._is_checked = False
        if database is not None:
            database.close()
        if server is not None:
            server.close()

    def _opened(self) -> Database:
        if self._database is None:
            self._database = Database(
                self.url, pool_size=self._pool_size, request_timeout=self._request_timeout, clock=system
            )
        return self._database

    def _started(self) -> embedded.Server:
        with self._lock:
            if self._server is None:
                try:
                    self._server = embedded.start(self._folder)
                except OSError as error:
                    raise PenstockError(
                        f"no PostgreSQL can be kept in {self._folder} ({error.strerror or error}): "
                        "work in another folder, or set PENSTOCK_URL to a server"
                    ) from error
            return self._server

    def _refuse_data_loss(self, database: Database) -> None:
        unsafe = database.unsafe_settings()
        if not unsafe:
            return
        problem = f"the database at {database.address} may lose acknowledged jobs in a crash: {', '.join(unsafe)}"
        if not self._accept_data_loss:
            raise PenstockError(f"{problem}; switch these on, or pass accept_data_loss=True if that is meant")
        log.warning("%s (accepted)", problem)
