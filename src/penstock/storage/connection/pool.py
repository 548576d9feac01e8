"""Connections that are checked out for one call and come back: the driver's pool, and one cached beside it."""

from __future__ import annotations

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from penstock.clock import Clock
from penstock.deadline import Deadline
from penstock.storage.connection.breaker import Breaker
from penstock.storage.connection.error_meaning import ConnectionCut, DatabaseDown, LockHeld, is_lost, schema_mismatch
from penstock.storage.connection.flow import Flow

__all__ = ["CachingPool", "Checkout", "DriverPool", "refuse_cut"]

STEP_SECONDS = 0.25
# So long the connection used last stays out of the pool.
CACHED_SECONDS = 60.0
IDLE = TransactionStatus.IDLE


class DriverPool(ConnectionPool[Flow]):
    """The driver's pool; a forked child leaves its parent's alone, whose threads and locks it could wait for."""

    is_inherited = False

    def __del__(self) -> None:
        if not self.is_inherited:
            super().__del__()


class CachingPool:
    """The driver's pool, and the connection of it that was used last.

    Where nobody else has one checked out, that one is cached beside the pool and given out next: the same session again
    and again is faster than the pool's turns. After `CACHED_SECONDS` it goes back, for the pool replaces connections
    that have grown old.
    """

    __slots__ = ("cached", "caches", "driver_pool")

    def __init__(self, driver_pool: DriverPool, *, caches: bool) -> None:
        self.driver_pool = driver_pool
        self.caches = caches
        # At most one, and since when it is not in the pool.
        self.cached: list[tuple[Flow, float]] = []

    def close(self, timeout: float) -> None:
        self.caches = False
        while self.cached:
            self.driver_pool.putconn(self.cached.pop()[0])
        self.driver_pool.close(timeout)


class Checkout:
    """A connection for the length of a `with` block."""

    __slots__ = ("_breaker", "_clock", "_connection", "_deadline", "_is_bounded", "_pool", "_since")

    def __init__(
        self, pool: CachingPool, breaker: Breaker, clock: Clock, deadline: Deadline, *, is_bounded: bool
    ) -> None:
        # As they are now: the database may be closed, and opened anew, while the connection is out.
        self._pool = pool
        self._breaker = breaker
        self._clock = clock
        # Until when a connection is waited for. Where it is bounded, statements in the block end then, too.
        self._deadline = deadline
        self._is_bounded = is_bounded

    def __enter__(self) -> Flow:
        breaker, deadline = self._breaker, self._deadline
        now = self._clock.monotonic()
        while True:
            if breaker.is_down:
                raise DatabaseDown(breaker.reason)
            try:
                self._connection, self._since = self._pool.cached.pop()
                break
            except IndexError:
                pass
            # In steps: where the breaker finds the database down meanwhile, nobody waits on.
            try:
                self._connection = self._pool.driver_pool.getconn(max(min(deadline.left(), STEP_SECONDS), 0.001))
            except PoolTimeout:
                breaker.note_failure()
                if deadline.left() <= 0.0:
                    raise PoolTimeout(self._describe_shortage()) from None
            else:
                self._since = now = self._clock.monotonic()
                break
        if self._is_bounded:
            self._connection.deadline = deadline
            self._connection.has_done = False
        breaker.calls[id(self)] = now
        return self._connection

    def _describe_shortage(self) -> str:
        """Why no connection was free in time: the server's word, if it said one, or our own use of them."""
        seconds = f"{self._deadline.seconds:g} s"
        if self._breaker.reason:
            return self._breaker.reason
        size = self._pool.driver_pool.max_size
        if len(self._breaker.calls) >= size:
            return f"all {size} connections of this app were in use for {seconds}: raise its pool_size"
        return f"no connection could be made within {seconds}"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        calls, connection, pool = self._breaker.calls, self._connection, self._pool
        if pool.driver_pool.is_inherited:
            return
        del calls[id(self)]
        connection.deadline = None
        now = self._clock.monotonic()
        is_late = self._is_bounded and now >= self._deadline.at
        # While others have connections out somebody may wait for one, whom only the pool serves: then none is cached.
        if (
            error is None
            and not calls
            and not pool.cached
            and pool.caches
            and connection.pgconn.transaction_status == IDLE
            and now - self._since < CACHED_SECONDS
            and not is_late
        ):
            pool.cached.append((connection, self._since))
            return
        if is_late or isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            # Late: a cancel of its statement may still be on its way, and would hit whoever has it next. Read-only: its
            # session may have begun while the database took no writes, and would go on refusing them.
            connection.close()
        pool.driver_pool.putconn(connection)
        if is_late and isinstance(error, psycopg.errors.QueryCanceled):
            raise LockHeld(
                f"a statement was cancelled after {self._deadline.seconds:g} s, as another transaction holds a lock"
            ) from error
        if error is not None and is_lost(error):
            self._breaker.note_failure()
        if error is not None and (refusal := schema_mismatch(error, self._breaker.label)):
            raise refusal from error


def refuse_cut(connection: Flow) -> None:
    """Raise ConnectionCut where the server has closed an idle connection. Nothing was sent on it, so nothing was done.

    A server says nothing on a connection on which nothing was asked, except that it ends it: so any input means that.
    """
    if connection.has_input():
        connection.close()
        raise ConnectionCut("the server closed the connection")
