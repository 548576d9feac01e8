"""The listener: a thread that hears producers and wakes the conductor.

A connection on which nothing is said would not be missed when it dies: every few seconds the listener asks something.
Where notifications do not arrive, behind a transaction pooler for instance, it says so once; the worker then finds
new jobs by looking, a little later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress

from penstock.clock import system
from penstock.engine.throttled_log import ThrottledLog
from penstock.errors import PenstockError
from penstock.storage.connection.database import Database
from penstock.storage.connection.error_meaning import DatabaseError, with_remedy
from penstock.storage.connection.listen import hears_itself, listen, notify, wait_for_notification
from penstock.storage.connection.sessions import ask_nothing
from penstock.worker.conductor import Conductor

__all__ = ["Listener"]

# How often something is asked, to see whether anything would be heard.
ASK_SECONDS = 3.0

log = logging.getLogger("penstock")


class Listener:
    """A thread with a connection of its own, in which the conductor is told whenever something may have come."""

    def __init__(self, database: Database, queues: Sequence[int], conductor: Conductor) -> None:
        self._database = database
        self._queues = queues
        self._conductor = conductor
        self._is_stopping = False
        self._throttled_log = ThrottledLog(log)
        self._thread = threading.Thread(target=self._hear, name="penstock-listener", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Listen no more; a notification of one's own ends the wait."""
        self._is_stopping = True
        with suppress(PenstockError):
            self._database.run(lambda connection: notify(connection, self._queues[:1]), timeout=1.0)
        self._thread.join()

    def _hear(self) -> None:
        while not self._is_stopping:
            try:
                with self._database.connect("listener") as connection:
                    if self._database.is_pooled or not hears_itself(connection):
                        log.warning("notifications do not arrive here (a pooler?): the worker polls for new jobs")
                        return
                    listen(connection, self._queues)
                    self._conductor.note_news()
                    asked_at = system.monotonic()
                    while not self._is_stopping:
                        if wait_for_notification(connection, 1.0):
                            if rest_seconds := self._conductor.rest_seconds:
                                system.sleep(rest_seconds)
                                # What was notified meanwhile is looked for with it.
                                wait_for_notification(connection, 0.0)
                            self._conductor.note_news()
                        if system.monotonic() - asked_at > ASK_SECONDS:
                            ask_nothing(connection)
                            asked_at = system.monotonic()
            except DatabaseError as error:
                # Where the database is down, that is told where it is found out.
                if not self._database.breaker.is_down:
                    self._throttled_log.warning(
                        "the listener's connection was lost, and is made anew: %s", with_remedy(error)
                    )
                system.sleep(0.2)
