"""A database as the rest of Penstock sees it: connections to check out, and calls that are repeated when one breaks.

Every connection is in autocommit mode, so that one statement is one transaction unless somebody opens a larger one.
Prepared statements save planning on the hot path; behind a transaction pooler they would go astray. A pooler is known
by the process id it makes up, unless the user says whether there is one: there nothing is prepared, and nobody relies
on a session.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg_pool import PoolTimeout

from penstock.clock import Clock, system
from penstock.deadline import Deadline, current_deadline
from penstock.errors import PartitionUnavailable
from penstock.forking import renew_in_children
from penstock.storage.connection.breaker import Breaker
from penstock.storage.connection.connecting import RawJson, RawJsonBinary, connect_by_deadline, seconds_for_each_host
from penstock.storage.connection.error_meaning import (
    ConnectionLost,
    DatabaseDown,
    DatabaseError,
    LockHeld,
    entry_remedy,
    first_line,
    is_lost,
    may_repeat,
)
from penstock.storage.connection.flow import Flow, Session, has_done
from penstock.storage.connection.pool import CachingPool, Checkout, DriverPool, refuse_cut
from penstock.storage.connection.queries import query
from penstock.storage.connection.schema_name import SCHEMA, split_schema
from penstock.storage.connection.sqlstate import remedy
from penstock.storage.connection.urls import ENCODING, pooled_by_environment, writable_conninfo

__all__ = ["Connection", "Database"]

Connection = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")

# The driver and its pool tell of every connection that breaks: for whoever sets logging up, not for a bare stderr.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

DURABILITY_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")


class Database:
    """One PostgreSQL database. Safe to use from any number of threads."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 8,
        request_timeout: float = 30.0,
        lease_seconds: float = 15.0,
        clock: Clock = system,
        name: str = "penstock",
        shard: int = 1,
        is_alone: bool = True,
        is_pooled: bool | None = None,
    ) -> None:
        self.url = url
        conninfo, self.schema = split_schema(url)
        self._target = writable_conninfo(conninfo)
        self.shard = shard
        self.lease_seconds = lease_seconds
        self.breaker = Breaker(self._target, f"the database at {self.address}", clock, lease_seconds)
        self.join(shard, is_alone=is_alone)
        self.request_timeout = request_timeout
        self.clock = clock
        self._name = name
        self.pool_size = pool_size
        self._pool: CachingPool | None = None
        self._lock = threading.Lock()
        renew_in_children(self, Database._renew_after_fork)
        self.is_pooled: bool | None = pooled_by_environment() if is_pooled is None else is_pooled
        self._was_let_in = False
        # How often the server looks whether the client of a running statement is still there.
        self._notice = "2s"
        # Whether the last question to several databases was answered without it.
        self.is_left_out = False

    def join(self, shard: int, *, is_alone: bool) -> None:
        """Be this shard; one that is not alone is called by its number."""
        self.shard = shard
        label = f"the database at {self.address}"
        self.breaker.label = label if is_alone else f"shard {shard}, {label},"

    def connection(self, timeout: float | None = None) -> Checkout:
        """Check a connection out for a `with` block; where it breaks it is replaced.

        In a call that has a deadline, statements end with it: as cancelled (LockHeld), or without an answer.
        """
        call = current_deadline()
        return self._check_out(self._deadline(timeout, call), is_bounded=call is not None)

    def _check_out(self, deadline: Deadline, *, is_bounded: bool) -> Checkout:
        pool = self._pool or self._open_pool()
        return Checkout(pool, self.breaker, self.clock, deadline, is_bounded=is_bounded)

    def _deadline(self, timeout: float | None, call: Deadline | None) -> Deadline:
        """Until when something may take that was given so long, within a call."""
        if call is None:
            return Deadline(self.request_timeout if timeout is None else timeout, self.clock)
        if timeout is None or call.left() <= timeout:
            return call
        return Deadline(timeout, self.clock)

    def connect(self, purpose: str = "", *, carries_lease: bool = False) -> Connection:
        """A connection of one's own, for what lasts: a worker's conversation, LISTEN. The server shows its purpose.

        One that carries a lease is cut when no answer has come for as long as a lease lasts, whatever the server does.
        """
        if self.breaker.is_down:
            raise DatabaseDown(self.breaker.reason)
        self.breaker.watch()
        name = f"{self._name} {purpose}".strip()
        try:
            connection = connect_by_deadline(self._target, name, self.request_timeout)
            connection.cut_after = self.lease_seconds if carries_lease else None
            self._configure(connection)
        except ConnectionLost as error:
            if is_lost(error):
                self.breaker.note_failure()
            raise
        return connection

    def run(
        self,
        act: Callable[[Connection], T],
        *,
        timeout: float | None = None,
        waits: bool = True,
        writes: bool = True,
    ) -> T:
        """Do what may safely be done twice, again and again until it succeeds or the time is up.

        `waits`: where the database is down, wait until it is back. `writes`: the act may change something, so that
        where its answer is lost the outcome of the call is unknown.
        """
        call = current_deadline()
        deadline = self._deadline(timeout, call)
        pause = 0.02
        failing_since: float | None = None
        while True:
            is_begun = False
            began_at = self.clock.monotonic()
            try:
                with self._check_out(deadline, is_bounded=call is not None) as connection:
                    if call is not None and writes:
                        refuse_cut(connection)
                    is_begun = True
                    try:
                        done = act(connection)
                    except BaseException:
                        # Each statement outside a transaction is committed by itself: those before the failed one are.
                        if call is not None and writes and has_done(connection):
                            call.note_written()
                        raise
                if call is not None and writes:
                    call.note_written()
                return done
            except LockHeld as error:
                raise self.unavailable(error) from error
            except DatabaseError as error:
                # A write sets its own lock_timeout: where that has run out, it has waited as long as it wants to.
                has_waited_for_lock = writes and isinstance(error, psycopg.errors.LockNotAvailable)
                if has_waited_for_lock or not may_repeat(error):
                    raise
                if call is not None and writes and is_begun and is_lost(error):
                    call.note_written()
                # A database that is known to be read-only is as good as down for an act that it refused as a write.
                is_refused = isinstance(error, psycopg.errors.ReadOnlySqlTransaction) and not self.breaker.is_writable
                is_given_up = not waits and (self.breaker.is_down or is_refused)
                # Who was never let in is told at once: credentials do not mend themselves, as a server does.
                is_given_up = is_given_up or (not self._was_let_in and entry_remedy(error) is not None)
                # Where the deadline counts from the last answer, the statements before the one that fails renew it each
                # time: so it also counts how long the act has been failing.
                now = self.clock.monotonic()
                if failing_since is None or now - began_at > deadline.seconds:
                    failing_since = now
                is_given_up = is_given_up or (deadline.renews and now - failing_since > deadline.seconds)
                if is_given_up or deadline.left() <= pause:
                    raise self.unavailable(error) from error
                self.clock.sleep(pause)
                if waits:
                    self.breaker.wait_until_up(deadline.left() - pause)
                pause = min(pause * 2, 0.5)

    def ask(self, act: Callable[[Connection], T], *, timeout: float | None = None, writes: bool = True) -> T:
        """The same, without waiting for a database that is down: whoever asks several has the answers of the others."""
        return self.run(act, timeout=timeout, waits=False, writes=writes)

    def unavailable(self, error: BaseException) -> PartitionUnavailable:
        """The error a user meets when the database does not answer."""
        problem, advice = self.describe_failure(error), "see that it runs and accepts connections"
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            advice = "see that it runs and accepts writes"
        elif isinstance(error, LockHeld):
            advice = "end that transaction (pg_blocking_pids names it)"
        elif isinstance(error, PoolTimeout):
            advice = "see that it runs and has connections left for this app"
        elif not is_lost(error):
            advice = "see what is in its way"
        if not isinstance(error, LockHeld):
            advice = remedy(getattr(error, "sqlstate", None) or "") or entry_remedy(error) or advice
        return PartitionUnavailable(
            f"{self.breaker.label} {problem} ({first_line(error)}); {advice}, then call again", shard=self.shard
        )

    @staticmethod
    def describe_failure(error: BaseException) -> str:
        """What the database does, as a verb, by the error that whoever tried again and again ended with."""
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            return "is read-only"
        if not is_lost(error) and not isinstance(error, LockHeld):
            return "rolled it back each time"
        if getattr(error, "sqlstate", None) == "53100":
            return "has no room on its disk"
        return "refuses the connection" if entry_remedy(error) else "does not answer"

    @property
    def address(self) -> str:
        """Where the database is, without the password."""
        options = psycopg.conninfo.conninfo_to_dict(self._target)
        where = f"{options.get('host') or 'localhost'}:{options.get('port') or 5432}/{options.get('dbname') or ''}"
        return where if self.schema == SCHEMA else f"{where}, schema {self.schema}"

    def unsafe_settings(self, timeout: float | None = None, *, waits: bool = True) -> list[str]:
        """The settings that would lose acknowledged jobs in a crash, as name=value; empty where all is well."""

        def read(connection: Connection) -> list[str]:
            rows = connection.execute(query("durability_settings"), {"names": list(DURABILITY_SETTINGS)}).fetchall()
            return [f"{name}={setting}" for name, setting in rows if setting in ("off", "local")]

        return self.run(read, timeout=timeout, waits=waits, writes=False)

    def close(self) -> None:
        """Give back every connection."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            # Closing waits for connections that are just being made: where the database is down, not at all.
            pool.close(0.0 if self.breaker.is_down else 0.5)
        self.breaker.close()
        self.breaker = Breaker(self._target, self.breaker.label, self.clock, self.lease_seconds)

    def _renew_after_fork(self) -> None:
        """In a forked child: leave the parent its sessions, and connect anew when the first is needed."""
        self.breaker.flows.leave_to_parent()
        if self._pool is not None:
            self._pool.driver_pool.is_inherited = True
        self._pool = None
        self._lock = threading.Lock()
        self.breaker = Breaker(self._target, self.breaker.label, self.clock, self.lease_seconds)

    def _open_pool(self) -> CachingPool:
        self.breaker.watch()
        with self._lock:
            if self._pool is None:
                pool = DriverPool(
                    self._target,
                    connection_class=Flow,
                    kwargs={
                        "autocommit": True,
                        "application_name": self._name,
                        "connect_timeout": seconds_for_each_host(self._target, self.request_timeout),
                        "client_encoding": ENCODING,
                    },
                    min_size=1,
                    max_size=self.pool_size,
                    max_idle=60,
                    reconnect_timeout=5,
                    configure=self._configure,
                    open=True,
                )
                # A pool of one caches nothing: whoever waits for the connection is served by the pool alone.
                self._pool = CachingPool(pool, caches=self.pool_size > 1)
            return self._pool

    def _configure(self, connection: Flow) -> None:
        self.breaker.flows.add(connection)
        connection.use_schema(self.schema)
        connection.add_notice_handler(connection.note_remark)
        connection.adapters.register_loader("json", RawJson)
        connection.adapters.register_loader("json", RawJsonBinary)
        connection.adapters.register_loader("jsonb", RawJson)
        row = connection.execute(query("read_session")).fetchone()
        assert row is not None  # noqa: S101
        self._was_let_in = True
        if self.is_pooled is None:
            self.is_pooled = row[0] != connection.info.backend_pid
        connection.session = Session(row[0], row[2])
        connection.prepare_threshold = None if self.is_pooled else 2
        # Whoever waits for a lock must see what its holder did, whatever the database's own default is. Where that is
        # this level already nothing has to say so, and `one_transaction` needs no BEGIN.
        if row[1] != "read committed":
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        # A pooler's session belongs to others too.
        if not self.is_pooled:
            try:
                connection.execute(query("set_session"), {"notice": self._notice})
            except psycopg.errors.InvalidParameterValue:
                self._notice = "0"
                connection.execute(query("set_session"), {"notice": self._notice})
