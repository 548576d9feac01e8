"""Whether a database answers, learned from the calls that are made anyway.

A call that fails, or that takes long, makes a probe look: a connection of its own, and a commit that writes nothing but
itself, which have a few seconds. Only what the probe finds counts, so that one cut connection or one slow statement
does not condemn a server. While a database is down nobody tries: whoever would wait for it is told at once, and the
probe goes on looking until it is back. Where a server says nothing (it is stopped), or commits nothing (its disk hangs,
or the standby it waits for is gone), the sockets in use are shut, for nobody else would ever wake those who wait on
them.

A connection that is dead while the others live is found out by the probe, too: see `flow_watch`.
"""

from __future__ import annotations

import logging
import select
import threading
from typing import Literal, TypeVar

import psycopg
from psycopg.abc import PQGen

from penstock.clock import Clock, system
from penstock.storage.connection.flow import ForkSafeConnection
from penstock.storage.connection.flow_watch import FlowWatch
from penstock.storage.connection.queries import query
from penstock.storage.connection.sqlstate import decide

__all__ = ["Breaker", "Health"]

log = logging.getLogger("penstock")

RV = TypeVar("RV")
Health = Literal["up", "read-only", "down"]

# A call that takes longer makes the probe look.
LONG_SECONDS = 1.0
# What a server has to take a connection (the driver's least), and how often it is asked while it is down.
ANSWER_SECONDS = 2
# What it has to commit.
COMMIT_SECONDS = 5.0
COMMIT = query("commit_nothing").encode()
PROBE_SECONDS = 0.5


class ProbeUnanswered(psycopg.OperationalError):
    """Whoever looks after the others must not wait for ever itself."""


class Probe(ForkSafeConnection):
    """A connection on which every answer has to come in time."""

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Every exchange with the server goes through here."""
        began_at = system.monotonic()
        try:
            return super().wait(gen, interval, COMMIT_SECONDS if timeout is None else timeout)
        except psycopg.OperationalError as error:
            if system.monotonic() - began_at < COMMIT_SECONDS:
                raise
            raise ProbeUnanswered(f"it takes connections, and says nothing for {COMMIT_SECONDS:g} s") from error


class Breaker:
    """Of one database. Safe to use from any number of threads."""

    def __init__(self, url: str, label: str, clock: Clock, lease_seconds: float) -> None:
        self._url = url
        self.label = label
        self._clock = clock
        # Every connection to the database.
        self.flows = FlowWatch(lease_seconds)
        self.health: Health = "up"
        self.reason = ""
        # Since when each connection is checked out, by the id of its Checkout, which writes it down.
        self.calls: dict[int, float] = {}
        self._doubt = threading.Event()
        self._is_up = threading.Event()
        self._is_up.set()
        self._closed = threading.Event()
        self._watcher: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def is_down(self) -> bool:
        return self.health == "down"

    @property
    def is_writable(self) -> bool:
        return self.health == "up"

    def watch(self) -> None:
        """Begin to look after the calls under way."""
        with self._lock:
            if self._watcher is None and not self._closed.is_set():
                self._watcher = threading.Thread(target=self._watch, name="penstock-health", daemon=True)
                self._watcher.start()

    def note_failure(self) -> None:
        """A call could not reach the database: look whether anybody can."""
        self.watch()
        self._doubt.set()

    def wait_until_up(self, seconds: float) -> bool:
        """Wait so long for a database that is down; whether it is back."""
        return self._is_up.wait(max(seconds, 0.0))

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        self._doubt.set()

    def _watch(self) -> None:
        while not self._closed.is_set():
            has_doubt = self._doubt.wait(PROBE_SECONDS)
            self.flows.cut_overdue()
            if has_doubt:
                self._doubt.clear()
            elif not (self.is_down or self._has_long_call() or self.flows.has_silent or self.flows.has_cut):
                continue
            if self._closed.is_set():
                return
            self._note(*self._probe())
            if self.health != "up":
                self._closed.wait(PROBE_SECONDS)
                self._doubt.set()

    def _has_long_call(self) -> bool:
        now = self._clock.monotonic()
        return any(now - since > LONG_SECONDS for since in list(self.calls.values()))

    def _probe(self) -> tuple[Health, str, bool]:
        """How the database is, why, and whether it hangs."""
        try:
            connection = Probe.connect(
                self._url, autocommit=True, application_name="penstock probe", connect_timeout=ANSWER_SECONDS
            )
        except psycopg.errors.ConnectionTimeout as error:
            return "down", _first_line(error), True
        except psycopg.Error as error:
            if "too many" in str(error) or "remaining connection slots" in str(error):
                return "up", _first_line(error), False  # It is there, and busy: who waits in vain is told.
            return "down", _first_line(error), False
        try:
            for dead in self.flows.end_dead(connection):
                log.warning(
                    "a connection to %s got no answer for %.1f s, and its session %d does nothing: it is made anew",
                    self.label,
                    dead.seconds,
                    dead.process,
                )
            told = connection.info.parameter_status
            if "on" in (told("default_transaction_read_only"), told("in_hot_standby")):
                return "read-only", "", False
            if not self._commits(connection):
                return "down", f"it takes connections, and a commit does not end within {COMMIT_SECONDS:g} s", True
        except ProbeUnanswered as error:
            return "down", _first_line(error), True
        except psycopg.Error as error:
            # The server has answered, if only that the probe was cancelled, by a role's timeout say.
            if error.sqlstate is None or decide(error.sqlstate) == "lost":
                return "down", _first_line(error), False
        finally:
            connection.close()
        return "up", "", False

    def _commits(self, connection: psycopg.Connection[tuple[object, ...]]) -> bool:
        """Whether a commit reaches the disk in time."""
        wire = connection.pgconn
        wire.send_query(COMMIT)
        until = self._clock.monotonic() + COMMIT_SECONDS
        while wire.is_busy():
            if not select.select([wire.socket], [], [], max(until - self._clock.monotonic(), 0.0))[0]:
                return False
            wire.consume_input()
        return True

    def _note(self, health: Health, reason: str, hangs: bool) -> None:
        before, self.health, self.reason = self.health, health, reason
        if health == "down":
            self._is_up.clear()
        else:
            self._is_up.set()
        if health != before:
            log.log(
                logging.INFO if health == "up" else logging.WARNING,
                "%s is %s%s",
                self.label,
                {"up": "back", "read-only": "read-only: nothing can be written", "down": "down"}[health],
                f" ({reason})" if reason else "",
            )
        if hangs:
            self.flows.cut_all()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
