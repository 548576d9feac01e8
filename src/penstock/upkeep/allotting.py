"""The permits of a `total_limit` and the tokens of a `total_rate` follow the work: one of all workers moves them,
several times a second.

It is the holder of the queue's duty, and stays it while it comes back in time; any other takes over when it does not.
The thread is there only while some queue has one of these.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import FIRST_COMPLETED, wait
from functools import partial

from penstock.clock import system
from penstock.errors import PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.shards.permits import Allotter
from penstock.storage.connection.error_meaning import ConnectionLost
from penstock.storage.work import permits as storage
from penstock.upkeep.troubles import Troubles

__all__ = ["Allotting"]

log = logging.getLogger("penstock")

ROUND_SECONDS = 0.2
# Whoever does not come back for so long has no duty any more.
DUTY_SECONDS = 0.8
ASK_SECONDS = 1.0


class Allotting:
    """A thread of a worker. `begin` is called again and again by its shared upkeep; `stop` once."""

    def __init__(self, databases: Databases, troubles: Troubles) -> None:
        self._databases = databases
        self._allotter = Allotter(databases)
        self._troubles = troubles
        self._holder = system.random_token() >> 10
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the rounds, unless they go on already or there is nothing to allot."""
        is_going_on = self._thread is not None and self._thread.is_alive()
        if not is_going_on and not self._stopped.is_set() and self._databases.read(storage.queues_with_totals):
            self._thread = threading.Thread(target=self._run, name="penstock-allotting", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End them. Whoever is asked just then and hangs is not waited for."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(ASK_SECONDS)

    def _run(self) -> None:
        has_any = True
        while has_any and not self._wait():
            try:
                queues = self._databases.lead.ask(storage.queues_with_totals, timeout=ASK_SECONDS)
            except Exception as error:
                self._note_failure(error)
                continue
            has_any = bool(queues)
            self._allotter.forget_others(queues)
            # One that fails is not in the way of those after it.
            failures = [each for each in (self._allot(*queue) for queue in queues.items()) if each is not None]
            if failures:
                # One of them, or they would take each other for something new in each round.
                self._note_failure(next((each for each in failures if not _is_away(each)), failures[0]))
            else:
                self._troubles.note_done("allot")

    def _wait(self) -> bool:
        """Wait for the next round; whether there is to be none. A shard that answers late is heard at once: the second
        that its tokens can be used for has begun.
        """
        if late := self._allotter.late:
            wait(late, ROUND_SECONDS, FIRST_COMPLETED)
            return self._stopped.is_set()
        return self._stopped.wait(ROUND_SECONDS)

    def _allot(self, queue: int, limit: int | None) -> Exception | None:
        """Make a round for a queue if that is this one's duty; what went wrong."""
        take = partial(storage.take_duty, queue=queue, holder=self._holder, seconds=DUTY_SECONDS)
        try:
            if self._databases.lead.ask(take, timeout=ASK_SECONDS):
                self._allotter.allot(queue, limit)
            else:
                self._allotter.forget(queue)
        except Exception as error:
            return error
        return None

    def _note_failure(self, error: Exception) -> None:
        if _is_away(error):
            # The breaker has logged that; each round would say it again.
            log.debug("permits and tokens could not be allotted: %s", error)
        elif not self._stopped.is_set():
            self._troubles.note_failure("allot", error)


def _is_away(error: Exception) -> bool:
    return isinstance(error, (PartitionUnavailable, *ConnectionLost))
