"""SIGTERM and SIGINT while a worker runs: they end it gently."""

from __future__ import annotations

import logging
import signal
import threading
from queue import SimpleQueue
from typing import Any, Self

from penstock.forking import renew_in_children
from penstock.worker import Worker

__all__ = ["Signals", "StoppedEarly"]


class StoppedEarly(BaseException):
    """A signal came before there was a worker to stop, while the database was waited for, say."""


class Signals:
    """SIGTERM and SIGINT end a worker gently while the block lasts; only the main thread may be asked for them.

    A signal may come while the main thread holds the very lock that stopping needs: another thread stops the worker.
    A SIGINT is a person's: what is waited for is told as a warning, which shows where logging was not set up, too.
    """

    def __init__(self) -> None:
        self._is_main = threading.current_thread() is threading.main_thread()
        # The numbers of the signals that came; 0 when the block ends.
        self._asked: SimpleQueue[int] = SimpleQueue()
        self._worker: Worker | None = None
        self._before: dict[int, Any] = {}
        self._stopper = threading.Thread(target=self._stop_when_asked, name="penstock-signals", daemon=True)

    def stop(self, worker: Worker) -> None:
        """From now on this is what a signal stops."""
        self._worker = worker

    def __enter__(self) -> Self:
        if self._is_main:
            self._stopper.start()
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
            renew_in_children(self, Signals._renew_after_fork)
        return self

    def _renew_after_fork(self) -> None:
        """In a forked child: there is no worker to stop, and nobody who would hear it; signals mean what they did."""
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, handler)
        self._before = {}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._is_main:
            self._asked.put(0)
            self._stopper.join()

    def _note(self, number: int, _frame: object) -> None:
        if self._worker is None:
            raise StoppedEarly
        self._asked.put(number)

    def _stop_when_asked(self) -> None:
        while number := self._asked.get():
            if self._worker is not None:
                self._worker.stop(level=logging.WARNING if number == signal.SIGINT else logging.INFO)
