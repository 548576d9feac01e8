"""The thread that asks the databases, and does what a key asked for, while the screen goes on.

One thing at a time: a slow answer never has others pile up behind it. A database that is away is told, and asked again.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.app import App
from penstock.cli.live.looks import Look, Looks
from penstock.cli.live.page import Page
from penstock.clock import system
from penstock.errors import PenstockError

__all__ = ["Reader", "look_at"]

# Who leaves does not wait for an answer that may never come.
STOP_SECONDS = 0.5


def look_at(app: App) -> Look:
    """One look: the queues, and what needs attention."""
    overview, attention = app.overview(), app.attention()
    return Look(overview, system.now(), system.monotonic(), attention)


class _Act(NamedTuple):
    do: Callable[[App], Any]
    then: Callable[[Any], None]
    refused: Callable[[str], None]


class Reader:
    """Looks every so many seconds, and at once when something was asked; `told` is called when there is news."""

    def __init__(self, app: App, seconds: float, told: Callable[[], None]) -> None:
        self.looks = Looks()
        self.trouble: str | None = None
        self.last_at = system.monotonic()
        self._app = app
        self._seconds = seconds
        self._told = told
        self._page: Page | None = None
        self._acts: deque[_Act] = deque()
        self._news: deque[Callable[[], None]] = deque()
        self._nudged = threading.Event()
        self._is_over = False
        # What is done is entered in the audit as done by whoever runs the command.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="penstock-top", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._is_over = True
        self._nudged.set()
        self._thread.join(STOP_SECONDS)

    def turn_to(self, page: Page) -> None:
        """Read this page from now on."""
        self._page = page
        self._nudged.set()

    def act(self, do: Callable[[App], Any], then: Callable[[Any], None], refused: Callable[[str], None]) -> None:
        """Do something there; what came of it is told by `hear`."""
        self._acts.append(_Act(do, then, refused))
        self._nudged.set()

    def hear(self) -> None:
        """In the thread of the screen: take what came of all that was done."""
        while self._news:
            self._news.popleft()()

    def _run(self) -> None:
        try:
            while not self._is_over:
                due = system.monotonic() + self._seconds
                self._nudged.clear()
                while self._acts:
                    self._do(self._acts.popleft())
                self._look()
                self._told()
                self._nudged.wait(max(due - system.monotonic(), 0.0))
        except BaseException as error:
            if not self._is_over:
                self._tell(_raising(error))

    def _do(self, act: _Act) -> None:
        try:
            done = act.do(self._app)
        except PenstockError as error:
            said = str(error)
            self._tell(lambda: act.refused(said))
        else:
            self._tell(lambda: act.then(done))

    def _look(self) -> None:
        page = self._page
        try:
            self.looks.add(look_at(self._app))
            self.trouble, self.last_at = None, system.monotonic()
        except PenstockError as error:
            self.trouble = str(error)
            return
        if page is None:
            return
        try:
            data = page.read(self._app)
            self._tell(lambda: _give(page, data, None))
        except PenstockError as error:
            said = str(error)
            self._tell(lambda: _give(page, None, said))

    def _tell(self, news: Callable[[], None]) -> None:
        self._news.append(news)
        self._told()


def _give(page: Page, data: Any, trouble: str | None) -> None:
    page.data, page.trouble = data, trouble


def _raising(error: BaseException) -> Callable[[], None]:
    def throw() -> None:
        raise error

    return throw
