"""A database as the rest of Penstock sees it: connections to lend, and what to do when one breaks.

Every connection is in autocommit mode, so that one statement is one transaction unless somebody opens a larger one.
Prepared statements save planning on the hot path; behind a transaction pooler they would go astray, and a pooler is
known by the process id it makes up, unless somebody says it: there nothing is prepared and nobody relies on a session.
"""

from __future__ import annotations

import logging
import os
import re
import select
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import Loader
from psycopg.pq import Format, TransactionStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from penstock.clock import Clock, system
from penstock.deadline import Deadline, current_deadline
from penstock.errors import InvalidInput, PartitionUnavailable, PenstockError, SchemaMismatch
from penstock.forking import renew_in_children
from penstock.storage.connection.breaker import Breaker
from penstock.storage.connection.flow import DeadlinePassed, Flow, Session, SessionEnded, has_done
from penstock.storage.connection.queries import query
from penstock.storage.connection.schema_name import SCHEMA, split_schema
from penstock.storage.connection.sqlstate import ABOUT_DATA, ABOUT_SCHEMA, CANCELLED, Decision, decide, remedy

__all__ = [
    "Connection",
    "ConnectionCut",
    "ConnectionLost",
    "Database",
    "DatabaseDown",
    "DatabaseError",
    "LockHeld",
    "checked_url",
    "checked_urls",
    "first_line",
    "is_about_data",
    "is_cancelled",
    "is_denial",
    "is_lost",
    "may_repeat",
    "mismatch",
    "one_transaction",
    "refuse_cut",
    "stops",
    "utf8_conninfo",
    "with_remedy",
]

Connection = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")

# What a broken connection or a server that is starting, stopping, full or read-only raises; repeating may help.
ConnectionLost = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    PoolTimeout,
)

# Whatever the driver raises; `is_lost` and `may_repeat` say what it means.
DatabaseError = psycopg.Error

# The driver and its pool tell of every connection that breaks: for whoever sets logging up, not for a bare stderr.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

DURABILITY_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")
STEP_SECONDS = 0.25
MOST_CONNECT_SECONDS = 10.0
# So long the connection used last stays out of the pool.
KEPT_SECONDS = 60.0
IDLE = TransactionStatus.IDLE
# Whatever a role or the environment says: arguments are UTF-8 on the wire.
ENCODING = "UTF8"


class _RawJson(Loader):
    """JSON stays bytes until somebody needs it: most of it is only passed on."""

    def load(self, data: Any) -> bytes:
        return bytes(data)


class _RawJsonBinary(_RawJson):
    format = Format.BINARY


class DatabaseDown(psycopg.OperationalError):
    """The database is known to be down; nobody tried."""


class ConnectionCut(psycopg.OperationalError):
    """The server has closed the connection before anything was sent."""


class LockHeld(psycopg.OperationalError):
    """A statement had not ended when the time of its call was up, and was cancelled: nothing of it was done.

    As a rule it waited for a lock that another transaction holds.
    """

    sqlstate = "55P03"


class Pool(ConnectionPool[Flow]):
    """The driver's pool; a forked child leaves its parent's alone, whose threads and locks it could wait for."""

    is_inherited = False

    def __del__(self) -> None:
        if not self.is_inherited:
            super().__del__()


class Stock:
    """A pool, and the connection of it that was used last.

    Where nobody else has one out, that is kept beside the pool and lent next: the same session again and again is
    faster than the pool's turns. From time to time it goes back, for the pool replaces connections that have grown old.
    """

    __slots__ = ("keeps", "kept", "pool")

    def __init__(self, pool: Pool, *, keeps: bool) -> None:
        self.pool = pool
        self.keeps = keeps
        # At most one, and since when it is not in the pool.
        self.kept: list[tuple[Flow, float]] = []

    def close(self, timeout: float) -> None:
        self.keeps = False
        while self.kept:
            self.pool.putconn(self.kept.pop()[0])
        self.pool.close(timeout)


class Lent:
    """A connection for the length of a `with` block."""

    __slots__ = ("_breaker", "_clock", "_connection", "_deadline", "_is_bounded", "_pool_size", "_since", "_stock")

    def __init__(self, database: Database, stock: Stock, deadline: Deadline, *, is_bounded: bool) -> None:
        # As they are now: the database may be closed, and opened anew, while the connection is out.
        self._breaker = database.breaker
        self._clock = database.clock
        self._stock = stock
        self._pool_size = database.pool_size
        # Until when a connection is waited for; and, where it is bounded, until when the block may take.
        self._deadline = deadline
        self._is_bounded = is_bounded

    def __enter__(self) -> Connection:
        breaker, deadline = self._breaker, self._deadline
        now = self._clock.monotonic()
        while True:
            if breaker.is_down:
                raise DatabaseDown(breaker.reason)
            try:
                self._connection, self._since = self._stock.kept.pop()
                break
            except IndexError:
                pass
            # In steps: a database that dies meanwhile is not waited for to the end.
            try:
                self._connection = self._stock.pool.getconn(max(min(deadline.left(), STEP_SECONDS), 0.001))
            except PoolTimeout:
                breaker.failed()
                if deadline.left() <= 0.0:
                    raise PoolTimeout(self._why_none()) from None
            else:
                self._since = now = self._clock.monotonic()
                break
        if self._is_bounded:
            self._connection.deadline = deadline
            self._connection.has_done = False
        breaker.calls[id(self)] = now
        return self._connection

    def _why_none(self) -> str:
        """Why no connection was free in time: the server's word, if it said one, or our own use of them."""
        seconds = f"{self._deadline.seconds:g} s"
        if self._breaker.reason:
            return self._breaker.reason
        if len(self._breaker.calls) >= self._pool_size:
            return f"all {self._pool_size} connections of this app were in use for {seconds}: raise its pool_size"
        return f"no connection could be made within {seconds}"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        calls, connection, stock = self._breaker.calls, self._connection, self._stock
        if stock.pool.is_inherited:
            return
        del calls[id(self)]
        connection.deadline = None
        now = self._clock.monotonic()
        is_late = self._is_bounded and now >= self._deadline.at
        # Whoever waits for a connection has others before it, whose end gives it one: then none is kept.
        if (
            error is None
            and not calls
            and not stock.kept
            and stock.keeps
            and connection.pgconn.transaction_status == IDLE
            and now - self._since < KEPT_SECONDS
            and not is_late
        ):
            stock.kept.append((connection, self._since))
            return
        if is_late or isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            # A cancel that was asked for may still be on its way, and nobody else should meet it; or its session may
            # have begun while the database was read-only, and would stay so.
            connection.close()
        stock.pool.putconn(connection)
        if is_late and isinstance(error, psycopg.errors.QueryCanceled):
            raise LockHeld(
                f"a statement was cancelled after {self._deadline.seconds:g} s, as another transaction holds a lock"
            ) from error
        if error is not None and is_lost(error):
            self._breaker.failed()
        if error is not None and (told := mismatch(error, self._breaker.label)) is not None:
            raise told from error


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
        self._target = writable(conninfo)
        self.shard = shard
        self.lease_seconds = lease_seconds
        self.breaker = Breaker(self._target, f"the database at {self.address}", clock, lease_seconds)
        self.join(shard, is_alone=is_alone)
        self.request_timeout = request_timeout
        self.clock = clock
        self._name = name
        self.pool_size = pool_size
        self._stock: Stock | None = None
        self._lock = threading.Lock()
        renew_in_children(self, Database._renew_after_fork)
        self.is_pooled: bool | None = _told_by_environment() if is_pooled is None else is_pooled
        # How often the server looks whether the client of a running statement is still there.
        self._notice = "2s"
        # Whether the last question to several databases was answered without it.
        self.is_left_out = False

    def join(self, shard: int, *, is_alone: bool) -> None:
        """Be this shard; one that is not alone is called by its number."""
        self.shard = shard
        place = f"the database at {self.address}"
        self.breaker.label = place if is_alone else f"shard {shard}, {place},"

    def connection(self, timeout: float | None = None) -> Lent:
        """Lend a connection for a `with` block; where it breaks it is replaced.

        In a call that has a deadline, statements end with it: as cancelled (LockHeld), or without an answer.
        """
        stock = self._stock or self._opened()
        call = current_deadline()
        return Lent(self, stock, self._deadline(timeout, call), is_bounded=call is not None)

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
            connection = self._connected(name)
            connection.cut_after = self.lease_seconds if carries_lease else None
            self._configure(connection)
        except ConnectionLost as error:
            if is_lost(error):
                self.breaker.failed()
            raise
        return connection

    def _connected(self, name: str) -> Flow:
        """Connect; within a call in a thread that is left behind when its time is up: names are looked up meanwhile."""

        def connect() -> Flow:
            return Flow.connect(
                self._target,
                autocommit=True,
                application_name=name,
                connect_timeout=self._connect_seconds,
                client_encoding=ENCODING,
            )

        call = current_deadline()
        if call is None:
            return connect()
        made: Future[Flow] = Future()

        def run() -> None:
            try:
                connection = connect()
            except BaseException as error:
                made.set_exception(error)
            else:
                made.set_result(connection)

        threading.Thread(target=run, name="penstock-connect", daemon=True).start()
        try:
            connection = made.result(max(call.left(), 0.0))
        except TimeoutError:
            made.add_done_callback(_close_unwanted)
            raise DeadlinePassed(f"no connection could be made within {call.seconds:g} s") from None
        connection.deadline = call
        return connection

    @property
    def _connect_seconds(self) -> int:
        """What each host of a URL is given; the driver's least are 2 seconds."""
        hosts = str(psycopg.conninfo.conninfo_to_dict(self._target).get("host") or "").split(",")
        return max(int(min(self.request_timeout, MOST_CONNECT_SECONDS) / len(hosts)), 2)

    def run(
        self,
        act: Callable[[Connection], T],
        *,
        timeout: float | None = None,
        waits: bool = True,
        writes: bool = True,
    ) -> T:
        """Do what may safely be done twice, again and again until it succeeds or the time is up.

        `waits`: for a database that is down. `writes`: what is lost on the way may have been written.
        """
        call = current_deadline()
        deadline = self._deadline(timeout, call)
        pause = 0.02
        failing_since: float | None = None
        while True:
            is_begun = False
            began_at = self.clock.monotonic()
            try:
                with Lent(self, self._stock or self._opened(), deadline, is_bounded=call is not None) as connection:
                    if call is not None and writes:
                        refuse_cut(connection)
                    is_begun = True
                    try:
                        done = act(connection)
                    except BaseException:
                        # Of an act of several statements those before the one that failed are committed.
                        if call is not None and writes and has_done(connection):
                            call.note_written()
                        raise
                if call is not None and writes:
                    call.note_written()
                return done
            except LockHeld as error:
                raise self.unavailable(error) from error
            except DatabaseError as error:
                # Whoever changes something says itself, in its statements, how long it waits for locks.
                is_impatient = writes and isinstance(error, psycopg.errors.LockNotAvailable)
                if is_impatient or not may_repeat(error):
                    raise
                if call is not None and writes and is_begun and is_lost(error):
                    call.note_written()
                # One that takes no writes is read: only who would write to it is told at once.
                is_refused = isinstance(error, psycopg.errors.ReadOnlySqlTransaction) and not self.breaker.is_writable
                is_given_up = not waits and (self.breaker.is_down or is_refused)
                # The answers on the way to what fails each time renew a deadline that counts from the last one.
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
        problem, advice = "does not answer", "see that it runs and accepts connections"
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            problem, advice = "is read-only", "see that it runs and accepts writes"
        elif isinstance(error, LockHeld):
            advice = "end that transaction (pg_blocking_pids names it)"
        elif isinstance(error, PoolTimeout):
            advice = "see that it runs and has connections left for this app"
        elif not is_lost(error):
            problem, advice = "rolled it back each time", "see what is in its way"
        if not isinstance(error, LockHeld):
            advice = remedy(getattr(error, "sqlstate", None) or "") or advice
        return PartitionUnavailable(
            f"{self.breaker.label} {problem} ({first_line(error)}); {advice}, then call again", shard=self.shard
        )

    @property
    def address(self) -> str:
        """Where the database is, without the password."""
        options = psycopg.conninfo.conninfo_to_dict(self._target)
        where = f"{options.get('host') or 'localhost'}:{options.get('port') or 5432}/{options.get('dbname') or ''}"
        return where if self.schema == SCHEMA else f"{where}, schema {self.schema}"

    def unsafe_settings(self, timeout: float | None = None, *, waits: bool = True) -> list[str]:
        """The settings that would lose acknowledged jobs in a crash, as name=value; empty where all is well."""

        def read(connection: Connection) -> list[str]:
            rows = connection.execute(
                "select name, setting from pg_settings where name = any(%s)", [list(DURABILITY_SETTINGS)]
            ).fetchall()
            return [f"{name}={setting}" for name, setting in rows if setting in ("off", "local")]

        return self.run(read, timeout=timeout, waits=waits, writes=False)

    def close(self) -> None:
        """Give back every connection."""
        with self._lock:
            stock, self._stock = self._stock, None
        if stock is not None:
            # Whoever is just connecting to one that hangs would be waited for.
            stock.close(0.0 if self.breaker.is_down else 0.5)
        self.breaker.close()
        self.breaker = Breaker(self._target, self.breaker.label, self.clock, self.lease_seconds)

    def _renew_after_fork(self) -> None:
        """In a forked child: leave the parent its sessions, and connect anew when the first is needed."""
        self.breaker.flows.leave_to_parent()
        if self._stock is not None:
            self._stock.pool.is_inherited = True
        self._stock = None
        self._lock = threading.Lock()
        self.breaker = Breaker(self._target, self.breaker.label, self.clock, self.lease_seconds)

    def _opened(self) -> Stock:
        self.breaker.watch()
        with self._lock:
            if self._stock is None:
                pool = Pool(
                    self._target,
                    connection_class=Flow,
                    kwargs={
                        "autocommit": True,
                        "application_name": self._name,
                        "connect_timeout": self._connect_seconds,
                        "client_encoding": ENCODING,
                    },
                    min_size=1,
                    max_size=self.pool_size,
                    max_idle=60,
                    reconnect_timeout=5,
                    configure=self._configure,
                    open=True,
                )
                # Of a single one whoever waits for it would hear only when it goes back.
                self._stock = Stock(pool, keeps=self.pool_size > 1)
            return self._stock

    def _configure(self, connection: Flow) -> None:
        self.breaker.flows.add(connection)
        connection.use_schema(self.schema)
        connection.add_notice_handler(connection.heed)
        connection.adapters.register_loader("json", _RawJson)
        connection.adapters.register_loader("json", _RawJsonBinary)
        connection.adapters.register_loader("jsonb", _RawJson)
        row = connection.execute(
            "select pg_backend_pid(), current_setting('default_transaction_isolation'),"
            " (select backend_start from pg_stat_get_activity(pg_backend_pid()))"
        ).fetchone()
        assert row is not None  # noqa: S101
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


def _close_unwanted(made: Future[Flow]) -> None:
    if made.exception() is None:
        made.result().close()


@contextmanager
def one_transaction(connection: Connection, *, is_one_statement: bool = False) -> Iterator[None]:
    """Statements that are one round trip and one transaction; their rows are fetched after the block.

    What is sent before one Sync of the protocol is one transaction, and a statement alone is one by itself: BEGIN and
    COMMIT would cost as much as a small statement, and are sent only where another isolation level is the default.
    """
    if connection.isolation_level is not None:
        with connection.pipeline(), connection.transaction():
            yield
    elif is_one_statement:
        yield
    else:
        with connection.pipeline():
            yield


def utf8_conninfo(url: str) -> str:
    """The same database for another driver, in sessions that speak UTF-8."""
    return psycopg.conninfo.make_conninfo(split_schema(url).conninfo, client_encoding=ENCODING)


def _told_by_environment() -> bool | None:
    """Whether $PENSTOCK_POOLED says that databases are behind a transaction pooler; None where it says nothing."""
    said = os.environ.get("PENSTOCK_POOLED", "").strip()
    if said not in ("", "0", "1"):
        raise InvalidInput("PENSTOCK_POOLED", "must be 1 (behind a transaction pooler) or 0 (direct), or not be set")
    return None if not said else said == "1"


def refuse_cut(connection: Connection) -> None:
    """Raise where the server has left an idle connection: what is not sent to it cannot have been done.

    A server that was not asked says nothing, but that it goes.
    """
    look = select.poll()
    look.register(connection.fileno(), select.POLLIN)
    if look.poll(0):
        connection.close()
        raise ConnectionCut("the server closed the connection")


def checked_url(url: object) -> str:
    """A URL the driver can read, or InvalidInput; what is quoted of it never holds a password."""
    if not isinstance(url, str) or ("://" not in url and "=" not in url):
        raise InvalidInput("url", "a PostgreSQL URL is needed, such as postgresql://localhost/jobs")
    if url.count("://") > 1:
        raise InvalidInput("url", "it holds several URLs; write App(shards=[url, url]), or PENSTOCK_URL='url url'")
    try:
        parts = psycopg.conninfo.conninfo_to_dict(split_schema(url).conninfo)
    except psycopg.Error:
        parts = None
    # An @ or / of a password that is not written as %40 or %2F ends up in the name of the host or the database.
    named = "" if parts is None else f"{parts.get('host') or ''}{parts.get('dbname') or ''}"
    if parts is None or "@" in named:
        raise InvalidInput(
            "url", "it cannot be read; write postgresql://user:password@host:5432/database, special characters as %XX"
        )
    return url


def writable(url: str) -> str:
    """The URL with which that one of several hosts is found that takes writes, unless the user says otherwise."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    hosts = str(parts.get("host") or parts.get("hostaddr") or "")
    if "," not in hosts or "target_session_attrs" in parts or "PGTARGETSESSIONATTRS" in os.environ:
        return url
    return psycopg.conninfo.make_conninfo(url, target_session_attrs="read-write")


def checked_urls(text: object) -> list[str]:
    """The URLs of shards from one text, a line each, or with spaces or commas between them."""
    # A comma also stands between several hosts of one URL: only one before a further URL parts them.
    urls = re.split(r"\s*\n\s*|[\s,]+(?=\w+://)", text.strip()) if isinstance(text, str) else [text]
    if len(set(urls)) < len(urls):
        raise InvalidInput("shards", "the same URL is given twice; each shard is a database of its own")
    return [checked_url(each) for each in urls]


def may_repeat(error: BaseException) -> bool:
    """Whether a worker should simply try again: the database is away, or rolled the transaction back."""
    return is_lost(error) or _decision(error) == "repeat"


def is_denial(error: BaseException) -> bool:
    """Whether the server itself said no: an ERROR, after which the transaction is rolled back and the session goes on.

    FATAL is no such answer, nor is a broken connection: a COMMIT that was sent may have been done before either.
    """
    if isinstance(error, LockHeld):
        return True
    if not isinstance(error, psycopg.Error) or error.sqlstate is None:
        return False
    return error.diag.severity_nonlocalized == "ERROR" and error.sqlstate[:2] != "08"


def is_refused(error: BaseException) -> bool:
    """Whether the database says that nothing may be written to it any more: it is drained (penstock.seal_shard)."""
    return getattr(error, "sqlstate", None) == "PS007"


def is_lost(error: BaseException) -> bool:
    """Whether an error says that the database could not be reached, rather than that it said no."""
    return _decision(error) == "lost"


def is_about_data(error: BaseException) -> bool:
    """Whether an error is about a value that a statement was given, or a row that it met: without that it may do."""
    if isinstance(error, psycopg.Error):
        return not is_lost(error) and (error.sqlstate or "").startswith(ABOUT_DATA)
    return isinstance(error, ValueError)  # The driver could not make sense of what it was sent.


def mismatch(error: BaseException, label: str) -> SchemaMismatch | None:
    """The error for whoever called, where a statement named what the schema has not: it is of another version."""
    if not isinstance(error, psycopg.Error) or is_lost(error) or not (error.sqlstate or "").startswith(ABOUT_SCHEMA):
        return None
    return SchemaMismatch(f"{label} has another version of the schema than this program: {with_remedy(error)}")


def is_cancelled(error: BaseException) -> bool:
    """Whether a statement was cancelled, by somebody or by a role's statement_timeout: half as much may do."""
    return _decision(error) == "repeat" and getattr(error, "sqlstate", None) == CANCELLED


def stops(error: BaseException, label: str) -> PenstockError | None:
    """The error for whoever started a worker, where nothing can be done there until a person comes."""
    if _decision(error) != "stop":
        return None
    return mismatch(error, label) or PenstockError(f"{label} cannot be worked on: {with_remedy(error)}")


def with_remedy(error: BaseException) -> str:
    """What an error says, and what to do about it where there is something."""
    advice = remedy(getattr(error, "sqlstate", None) or "")
    return f"{first_line(error)}; {advice}" if advice else first_line(error)


def first_line(error: BaseException) -> str:
    """What an error says, in short."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _decision(error: BaseException) -> Decision:
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate is None:
        return "lost" if isinstance(error, ConnectionLost) else "refuse"
    # Whatever else it says, the session is gone.
    is_fatal = isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized in ("FATAL", "PANIC")
    return "lost" if is_fatal or isinstance(error, SessionEnded) else decide(sqlstate)
