"""Wake calls: a thread that hears the producers of queues for which polls wait, and says of which queue there is news.

It listens to more and more queues, as polls come that wait for them. Where notifications do not arrive, behind a
transaction pooler for instance, polls look by themselves a little more often.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from penstock.clock import system
from penstock.engine.throttled_log import ThrottledLog
from penstock.errors import PenstockError
from penstock.storage import Connection, Database
from penstock.storage.connection.error_meaning import DatabaseError, with_remedy
from penstock.storage.connection.listen import hears_itself, listen, listen_to, notify_channel, wait_for_queues
from penstock.storage.connection.sessions import ask_nothing

__all__ = ["WakeCalls"]

log = logging.getLogger("penstock")

# How often something is asked, to see whether anything would be heard.
ASK_SECONDS = 3.0


class WakeCalls:
    """A thread with a connection of its own. `wake` is called in it, with a queue, or None: with any of them."""

    def __init__(self, database: Database, wake: Callable[[int | None], None]) -> None:
        self._database = database
        self._wake = wake
        self._queues: set[int] = set()
        self._is_stopping = False
        self._throttled_log = ThrottledLog(log)
        # On which it is told itself that there are further queues.
        self._channel = f"penstock_server_{system.random_token()}"
        self._thread: threading.Thread | None = None
        # Whether notifications arrive.
        self.hears = True

    def listen(self, queues: Iterable[int]) -> None:
        """From any thread: hear these queues too, in a moment."""
        if self._queues.issuperset(queues):
            return
        self._queues |= set(queues)
        if self._thread is None:
            self._thread = threading.Thread(target=self._hear, name="penstock-listener", daemon=True)
            self._thread.start()
        else:
            self._interrupt()

    def stop(self) -> None:
        """Hear nothing more."""
        self._is_stopping = True
        if self._thread is not None:
            self._interrupt()
            self._thread.join()

    def _interrupt(self) -> None:
        with suppress(PenstockError, DatabaseError):
            self._database.run(lambda connection: notify_channel(connection, self._channel), timeout=1.0)

    def _hear(self) -> None:
        while not self._is_stopping:
            try:
                with self._database.connect("listener") as connection:
                    if self._database.is_pooled or not hears_itself(connection):
                        log.warning("notifications do not arrive here (a pooler?): polls look for new jobs themselves")
                        self.hears = False
                        return
                    listen_to(connection, self._channel)
                    self._hear_over(connection)
            except DatabaseError as error:
                if not self._database.breaker.is_down:
                    self._throttled_log.warning(
                        "the listener's connection was lost, and is made anew: %s", with_remedy(error)
                    )
                system.sleep(0.2)

    def _hear_over(self, connection: Connection) -> None:
        heard: set[int] = set()
        asked_at = system.monotonic()
        while not self._is_stopping:
            if new := self._queues - heard:
                listen(connection, sorted(new))
                heard |= new
                # Whatever came before was not heard.
                self._wake(None)
            queues, _ = wait_for_queues(connection, 1.0)
            for queue in queues:
                self._wake(queue)
            if system.monotonic() - asked_at > ASK_SECONDS:
                ask_nothing(connection)
                asked_at = system.monotonic()
