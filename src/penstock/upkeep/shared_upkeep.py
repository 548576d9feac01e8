"""The round of upkeep that is about all databases of an app at once: see the duties in `shards`.

One thread a worker, safe in any number of workers at once. A duty fails alone: one that raises is tried again next
time, and told where that does not help (see troubles). Beside the duties come those of the app, every 2 s: to learn of
databases that were added; and to see whether there are permits to allot, which has a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from penstock.clock import system
from penstock.errors import PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.shards.upkeep_duties import Duty, shared_duties
from penstock.storage.connection.error_meaning import ConnectionLost
from penstock.storage.upkeep.sweep import note_trouble
from penstock.upkeep.allotting import Allotting
from penstock.upkeep.troubles import Troubles

__all__ = ["SharedUpkeep"]

log = logging.getLogger("penstock")

PAUSE_SECONDS = 0.5
ASK_SECONDS = 3.0


class SharedUpkeep:
    """A thread of a worker, beside the upkeep of each shard. `also` are the app's own: to learn of further shards."""

    def __init__(self, databases: Databases, also: Sequence[Callable[[], None]] = ()) -> None:
        self._databases = databases
        self._also = [Duty(getattr(act, "__name__", "duty"), _as_duty(act)) for act in also]
        self._stopped = threading.Event()
        self._next: dict[str, float] = {}
        # One duty at a time: a sweep beside one that has not committed yet would miss what that commits.
        self._doing = threading.Lock()
        self._troubles = Troubles(self._note_trouble)
        self._allotting = Allotting(databases, self._troubles)
        self._also.append(Duty("allotting", _as_duty(self._allotting.begin)))
        self._thread = threading.Thread(target=self._run, name="penstock-shared-upkeep", daemon=True)

    def start(self) -> None:
        """Begin the rounds."""
        self._thread.start()

    def stop(self) -> None:
        """End them. Whoever is asked just then and hangs is not waited for."""
        self._stopped.set()
        self._allotting.stop()
        self._thread.join(ASK_SECONDS)

    @property
    def errors(self) -> dict[str, str]:
        """By the name of a duty what went wrong with it the last time; without those that were done."""
        return self._troubles.errors

    def sweep(self) -> None:
        """Every duty, now, in the calling thread; for whoever must know that nothing is left to do."""
        for duty in shared_duties(self._databases):
            # A child that is cancelled may have children on other shards: again, until nobody hears anything new.
            before = None
            while (done := self._do(duty)) and duty.busy_seconds is not None and done != before:
                before = done

    def _run(self) -> None:
        while not self._stopped.is_set():
            is_down = all(database.breaker.is_down for database in self._databases)
            for duty in self._also if not is_down else ():
                self._do_in_time(duty)
            for duty in shared_duties(self._databases):
                self._do_in_time(duty)
            self._stopped.wait(PAUSE_SECONDS)

    def _do_in_time(self, duty: Duty) -> None:
        now = system.monotonic()
        if self._stopped.is_set() or now < self._next.get(duty.name, 0.0):
            return
        did_something = bool(self._do(duty)) and duty.busy_seconds is not None
        self._next[duty.name] = now + (duty.busy_seconds or duty.seconds if did_something else duty.seconds)

    def _do(self, duty: Duty) -> int:
        try:
            with self._doing:
                done = duty.act(self._databases)
        except Exception as error:
            if isinstance(error, (PartitionUnavailable, *ConnectionLost)) and self._has_shard_down():
                # The breaker has logged that; each duty would say it again.
                log.debug("upkeep's %s could not reach a shard: %s", duty.name, error)
            elif not self._stopped.is_set():
                self._troubles.note_failure(duty.name, error)
            return 0
        self._troubles.note_done(duty.name)
        return done

    def _has_shard_down(self) -> bool:
        return any(database.breaker.is_down for database in self._databases)

    def _note_trouble(self, duty: str, error: str | None, seconds: float) -> None:
        self._databases.each(lambda c: note_trouble(c, duty, error, seconds), timeout=ASK_SECONDS)


def _as_duty(act: Callable[[], None]) -> Callable[[Databases], int]:
    def run(_: Databases) -> int:
        act()
        return 0

    return run
