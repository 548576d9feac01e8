"""From what a user wrote to databases that are ready: URLs or embedded servers, their schema, their durability."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from penstock import embedded
from penstock.app.calls import locked
from penstock.app.embedded_servers import EmbeddedServers
from penstock.clock import system
from penstock.deadline import current_deadline, within, without_deadline
from penstock.errors import InvalidInput, PenstockError
from penstock.forking import renew_in_children
from penstock.model.checks import MOST_SHARDS, checked_count
from penstock.shards import joining
from penstock.shards.databases import Databases
from penstock.storage import Connection, Database
from penstock.storage.connection.schema_name import SCHEMA, checked_schema, is_schema_alone, split_schema, with_schema
from penstock.storage.connection.urls import checked_url, checked_urls
from penstock.storage.schema import check_schema, migrate

__all__ = ["Connecting"]

log = logging.getLogger("penstock")
T = TypeVar("T")


class Connecting:
    """Opens the databases when they are first needed, once, whichever thread comes first."""

    def __init__(
        self,
        url: str | None,
        shards: Sequence[str] | None,
        embedded_shards: int | None,
        *,
        may_embed: bool,
        pool_size: int,
        request_timeout: float,
        lease_seconds: float,
        accept_data_loss: bool,
        pooled: bool | None,
        schema: str,
    ) -> None:
        self._schema = checked_schema(schema)
        given = _given_urls(url, shards, embedded_shards)
        if given is not None and is_schema_alone(given[0]):
            # Its servers are embedded ones.
            self._schema, given = split_schema(self._with_schema(given[0])).schema, None
        self._given = None if given is None else [self._with_schema(each) for each in given]
        self._embedded = EmbeddedServers(embedded_shards, is_allowed=may_embed)
        self._pool_size = pool_size
        self.request_timeout = request_timeout
        self._lease_seconds = lease_seconds
        self._accept_data_loss = accept_data_loss
        self._pooled = pooled
        self._servers: list[embedded.Server] = []
        self._databases: Databases | None = None
        self._unchecked: list[Database] = []
        # Whether whoever has the lock makes a server of our own, or its schema.
        self._is_making = False
        self._lock = threading.RLock()
        renew_in_children(self, Connecting._renew_after_fork)

    def _renew_after_fork(self) -> None:
        """In a forked child: nobody is connecting. Its hold on embedded servers is its own from here on."""
        self._is_making = False
        self._lock = threading.RLock()

    @property
    def is_embedded(self) -> bool:
        return self._given is None and self._embedded.are_allowed

    @property
    def urls(self) -> list[str]:
        """The URLs of the databases; reading them starts the embedded servers that are there."""
        return (
            self._given
            if self._given is not None
            else [self._with_schema(server.url) for server in self._ensure_started()]
        )

    def start(self, seconds: float, *, creates: bool) -> None:
        """Start embedded servers, where these are meant; those that run already have so long to answer.

        Those that are not there yet are created, or are an error.
        """
        if self._given is None and not self._servers:
            self._ensure_started(seconds, creates=creates)

    def create(self) -> None:
        """Start embedded servers, where these are meant, and create those that are not there yet."""
        self.start(self.request_timeout, creates=True)

    def databases(self) -> Databases:
        """The databases, with a schema this code fits."""
        if self._databases is not None:
            return self._databases
        with self._locked():
            if self._databases is None:
                self._databases = self._open(migrate if self.is_embedded else check_schema)
            return self._databases

    def migrate(self) -> list[str]:
        """Bring the schema up to date, on every shard; what was applied."""
        self.create()
        with self._lock:
            applied: dict[str, None] = {}

            def bring_up(connection: Connection) -> None:
                applied.update(dict.fromkeys(migrate(connection)))

            databases = self._databases
            if databases is None:
                self._databases = self._open(bring_up, must_answer=True)
            else:
                databases.each(bring_up).all()
            return list(applied)

    def unchecked(self) -> list[Database]:
        """The databases as they are, for those who look what is wrong with them."""
        with self._locked():
            if self._databases is not None:
                return list(self._databases)
            if not self._unchecked:
                self._unchecked = self._make_databases()
            return self._unchecked

    def learn(self) -> None:
        """Take in shards that were added since."""
        with self._locked():
            databases = self.databases()
            for database in joining.further_shards(databases, self._make_database):
                databases.add(database)

    def add(self, databases: Databases, url: str) -> int:
        """Make a database a further shard of these, with the schema; its number."""
        with self._locked():
            database = self._make_database(self._with_schema(checked_url(url)))
            self._refuse_data_loss(database, None)
            with without_deadline():
                database.run(migrate)
            return joining.add(databases, database)

    def close(self) -> None:
        """Give everything back."""
        with self._lock:
            databases, self._databases = self._databases, None
            unchecked, self._unchecked = self._unchecked, []
            servers, self._servers = self._servers, []
        for database in [*(databases or ()), *unchecked]:
            database.close()
        for server in servers:
            server.close()

    def _open(self, ready: Callable[[Connection], object], *, must_answer: bool = False) -> Databases:
        databases = self._make_databases()
        try:
            return self._joined(databases, ready, must_answer=must_answer)
        except BaseException:
            for database in databases:
                database.close()
            raise

    def _joined(
        self, databases: list[Database], ready: Callable[[Connection], object], *, must_answer: bool
    ) -> Databases:
        def greet(database: Database, timeout: float | None, waits: bool) -> None:
            self._refuse_data_loss(database, timeout, waits=waits)
            if self.is_embedded or must_answer:
                with self._not_counted(), without_deadline():
                    database.run(ready, timeout=timeout, waits=waits)
            else:
                database.run(ready, timeout=timeout, waits=waits, writes=False)

        silent = joining.meet(databases, greet, must_answer=must_answer)
        for error in silent.values():
            log.warning("%s: its partitions wait until it is back", error)
        joined = joining.join(databases, silent, are_ours=self.is_embedded)
        for database in joining.further_shards(joined, self._make_database):
            joined.add(database)
        if notice := joined.drained_notice():
            log.warning("%s", notice)
        return joined

    def _with_schema(self, url: str) -> str:
        """The URL with the schema that the app was given."""
        if self._schema == SCHEMA:
            return url
        named = split_schema(url).schema
        if named not in (SCHEMA, self._schema):
            raise InvalidInput("schema", f"the URL names {named!r}, and schema= {self._schema!r}; give one of them")
        return with_schema(url, self._schema)

    def _make_databases(self) -> list[Database]:
        return [self._make_database(url) for url in self.urls]

    def _make_database(self, url: str) -> Database:
        return Database(
            url,
            pool_size=self._pool_size,
            request_timeout=self.request_timeout,
            lease_seconds=self._lease_seconds,
            clock=system,
            is_pooled=self._pooled,
        )

    def _ensure_started(self, seconds: float | None = None, *, creates: bool = False) -> list[embedded.Server]:
        with within(self.request_timeout if seconds is None else seconds), self._locked():
            if not self._servers:
                self._servers = self._embedded.start(self._not_counted, creates=creates)
            return self._servers

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked(self._lock, "connecting", is_excused=lambda: self._is_making):
            yield

    @contextmanager
    def _not_counted(self) -> Iterator[None]:
        """Make a server of our own, or its schema: no call, here or in a thread that waits for it, pays for that."""
        began_at = system.monotonic()
        self._is_making = True
        try:
            yield
        finally:
            self._is_making = False
            call = current_deadline()
            if call is not None:
                call.put_off(system.monotonic() - began_at)

    def _refuse_data_loss(self, database: Database, timeout: float | None, *, waits: bool = True) -> None:
        unsafe = database.unsafe_settings(timeout, waits=waits)
        if not unsafe:
            return
        problem = f"the database at {database.address} may lose acknowledged jobs in a crash: {', '.join(unsafe)}"
        if not self._accept_data_loss:
            raise PenstockError(f"{problem}; switch these on, or pass accept_data_loss=True if that is meant")
        log.warning("%s (accepted)", problem)


def _given_urls(url: str | None, urls: Sequence[str] | None, embedded_shards: int | None) -> list[str] | None:
    if sum(given is not None for given in (url, urls, embedded_shards)) > 1:
        raise InvalidInput("shards", "give a URL, shards=[...] or embedded_shards=, not several of them")
    if embedded_shards is not None:
        checked_count("embedded_shards", embedded_shards, most=16)
        return None
    if urls is not None:
        if not isinstance(urls, (list, tuple)) or not urls:
            raise InvalidInput("shards", "a list of URLs is needed; write shards=['postgresql://a/jobs', …]")
        checked_count("shards", len(urls), most=MOST_SHARDS)
        return _distinct([checked_url(each) for each in urls])
    named = os.environ.get("PENSTOCK_URL", "").strip() if url is None else url
    if is_schema_alone(named):
        return [named]
    if url is not None:
        return [checked_url(url)]
    return checked_urls(named) if named else None


def _distinct(urls: list[str]) -> list[str]:
    if len(set(urls)) < len(urls):
        raise InvalidInput("shards", "the same URL is given twice; each shard is a database of its own")
    return urls
