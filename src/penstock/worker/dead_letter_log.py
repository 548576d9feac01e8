"""The log of dead letters: the first is told at once, then one line a second tells of all that came since."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from penstock.storage.work.settle import End

__all__ = ["DeadLetterLog"]

log = logging.getLogger("penstock")

TOGETHER_SECONDS = 1.0


class DeadLetterLog:
    """One for each worker, used by all its conductors."""

    def __init__(self) -> None:
        self._count = 0
        self._first: End | None = None
        # While it runs, what comes is only counted: it tells of it.
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()
        self._lock = threading.Lock()

    def note(self, ends: Iterable[End]) -> None:
        """Take in what a turn ended."""
        dead = [end for end in ends if end.end == "failed"]
        if not dead:
            return
        with self._lock:
            self._first = self._first or dead[0]
            self._count += len(dead)
            if self._thread is None:
                self._write()
                self._thread = threading.Thread(target=self._write_later, name="penstock-dead-letters", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Tell the rest."""
        self._is_over.set()
        with self._lock:
            self._write()

    def _write_later(self) -> None:
        """Tell once a second of what came, until a second passes without any."""
        while not self._is_over.wait(TOGETHER_SECONDS):
            with self._lock:
                if not self._count:
                    self._thread = None
                    return
                self._write()

    def _write(self) -> None:
        if self._first is not None:
            said = (self._first.error or "").partition("\n")[0]
            job_id = self._first.range * 1024 + self._first.position
            log.warning("dead letters: %d, the first is job %d: %s", self._count, job_id, said)
        self._first, self._count = None, 0
