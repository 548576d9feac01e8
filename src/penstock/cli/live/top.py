"""The screen of `penstock top`: the page that is shown, what a person is asked, and what a key does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, NamedTuple

from rich.text import Text

from penstock.app import App
from penstock.cli.live.attention import Weight, concerns
from penstock.cli.live.looks import Flow, Look
from penstock.cli.live.page import Page, Seen, View, line, weight_style
from penstock.cli.live.pages import (
    AttentionPage,
    DeadPage,
    HelpPage,
    JobView,
    KeysPage,
    QueuePage,
    QueuesPage,
    WorkersPage,
)
from penstock.cli.live.reader import Reader
from penstock.cli.live.rows import ORDERS, queue_rows, sort_rows
from penstock.cli.live.screen import Screen, has_keys
from penstock.cli.times import length
from penstock.clock import system
from penstock.model import BlockedKey
from penstock.model.overview import Overview
from penstock.visible import visible

__all__ = ["Top", "seen", "summary"]

MOVES = frozenset(("up", "down", "page up", "page down", "home", "end"))
VI_MOVES = {"k": "up", "j": "down", "g": "home", "G": "end"}
# After so many missed looks it is said that none is answered.
PATIENT_LOOKS = 2
LEAST_TABLE_LINES = 6


class Leave(Exception):
    """`q` was struck."""


class Question(NamedTuple):
    """What a person is asked, and what is done where the answer is yes."""

    text: str
    yes: Callable[[], None]


def seen(look: Look, flows: Mapping[str, Flow], order: str, wanted: Collection[str] = (), pattern: str = "") -> Seen:
    """What there is to be shown of a look."""
    queues = [
        each
        for each in look.overview.queues
        if (not wanted or each.queue in wanted) and pattern.lower() in each.queue.lower()
    ]
    shown = {each.queue for each in queues}
    found = [each for each in concerns(look.attention) if each.queue is None or each.queue in shown]
    return Seen(sort_rows(queue_rows(queues, flows, found), order), found, order)


def summary(overview: Overview, now: Seen) -> str:
    """How much there is of everything that is shown, in one line."""
    waiting = sum(row.queue.waiting for row in now.rows)
    running = sum(row.queue.running for row in now.rows)
    return (
        f"{_some(len(now.rows), 'queue')}, {waiting:,} waiting, {running:,} running; "
        f"{_some(overview.workers, 'worker')}, {_some(overview.slots, 'slot')}"
    )


class Top:
    """One run of it."""

    def __init__(self, app: App, seconds: float, order: str, wanted: Collection[str], where: str) -> None:
        self._seconds = seconds
        self._order = order
        self._wanted = wanted
        self._where = where
        self._pattern = ""
        self._typed: str | None = None
        self._question: Question | None = None
        self._said: tuple[str, str] = ("", "")
        self._pages: list[Page] = [QueuesPage()]
        self._screen = Screen()
        self._reader = Reader(app, seconds, self._screen.wake)

    def run(self) -> None:
        """Until somebody leaves."""
        with self._screen:
            self._reader.start()
            try:
                if not has_keys():
                    self._said = ("keys do not work here: Ctrl-C leaves", "yellow")
                while True:
                    self._reader.hear()
                    self._screen.show(self._frame(*self._screen.size))
                    for key in self._screen.wait(1.0):
                        self._strike(key)
            except (Leave, EOFError, KeyboardInterrupt):
                pass
            finally:
                self._reader.stop()

    @property
    def _page(self) -> Page:
        return self._pages[-1]

    # What is shown

    def _frame(self, columns: int, lines: int) -> list[Text]:
        look = self._reader.looks.last
        if look is None:
            return [self._head(columns, ""), Text(), line(self._reader.trouble or "reading ...", "dim")]
        now = seen(look, self._reader.looks.flows(), self._order, self._wanted, self._pattern)
        view = self._page.view(now)
        drawn = [self._head(columns, f"{look.at.astimezone():%H:%M:%S}")]
        drawn.append(line(summary(look.overview, now) if len(self._pages) == 1 else view.title, "bold"))
        drawn += self._notes(view, lines)
        drawn.append(Text())
        feet = [self._status(), line(self._page.hint_line(columns), "dim")]
        drawn += self._page.draw(view, columns, lines - len(drawn) - len(feet))
        drawn += [Text()] * (lines - len(drawn) - len(feet))
        return [*drawn[: lines - len(feet)], *feet]

    def _head(self, columns: int, at: str) -> Text:
        text = line(f"penstock top  {self._where}", "bold cyan")
        every = f"every {self._seconds:g} s  {at}"
        text.truncate(max(columns - len(every) - 2, 0))
        text.append(" " * max(columns - text.cell_len - len(every), 1))
        return text.append(every, "dim")

    def _notes(self, view: View, lines: int) -> list[Text]:
        """What needs attention: as many lines as leave room for the table, and how many more there are."""
        if not view.notes:
            return [line("nothing needs attention", "green")] if len(self._pages) == 1 else []
        room = max(1, min(lines // 5, lines - LEAST_TABLE_LINES))
        shown = view.notes if len(view.notes) <= room else view.notes[: max(room - 1, 1)]
        drawn = [
            line(f"{'!' if each.weight < Weight.NOTE else '-'} {each.text}", weight_style(each.weight))
            for each in shown
        ]
        if len(shown) < len(view.notes):
            drawn.append(line(f"  and {len(view.notes) - len(shown):,} more: a", "dim"))
        return drawn

    def _status(self) -> Text:
        if self._typed is not None:
            return line(f"queues with: {self._typed}_", "bold")
        if self._question is not None:
            return line(f"{self._question.text} y/n", "bold yellow")
        silent = system.monotonic() - self._reader.last_at
        if self._reader.trouble or silent > PATIENT_LOOKS * self._seconds + 1:
            why = f": {self._reader.trouble}" if self._reader.trouble else ""
            return line(f"no answer for {length(silent)}, these are the last figures{why}", "bold red")
        if self._said[0]:
            return line(*self._said)
        return line(f"only queues with {self._pattern!r}: / changes it" if self._pattern else "", "dim")

    # What a key does

    def _strike(self, key: str) -> None:
        if self._question is not None:
            question, self._question = self._question, None
            if key in ("y", "Y"):
                question.yes()
            else:
                self._say("nothing was changed")
        elif self._typed is not None:
            self._type(key)
        else:
            self._said = ("", "")
            self._command(key)

    def _type(self, key: str) -> None:
        typed = self._typed or ""
        if key == "enter":
            self._pattern, self._typed = typed, None
        elif key == "escape":
            self._typed = None
        elif key == "backspace":
            self._typed = typed[:-1]
        elif len(key) == 1:
            self._typed = typed + key

    def _command(self, key: str) -> None:
        if key == "q":
            raise Leave
        if key in MOVES or key in VI_MOVES:
            self._page.move(VI_MOVES.get(key, key))
        elif key == "escape":
            self._back()
        elif key == "redraw":
            self._screen.redraw()
        elif key in ("s", "S"):
            names = list(ORDERS)
            self._order = names[(names.index(self._order) + (1 if key == "s" else -1)) % len(names)]
            self._say(f"sorted by {self._order}")
        elif key == "/":
            self._typed = self._pattern
        elif (act := self._ACTS.get(key)) is not None:
            act(self)

    def _open(self, page: Page) -> None:
        if type(page) is type(self._page) and not isinstance(page, (DeadPage, JobView)):
            return
        self._pages.append(page)
        self._reader.turn_to(page)

    def _back(self) -> None:
        if len(self._pages) > 1:
            self._pages.pop()
        else:
            self._pattern = ""
        self._reader.turn_to(self._page)

    def _queue(self) -> str | None:
        """The queue that an act is about: the page's, or the one that is selected."""
        if self._page.queue is not None:
            return self._page.queue
        row = self._page.row
        return row.name if row is not None and isinstance(self._page, QueuesPage) else None

    def _job(self) -> int | None:
        """The job that is selected."""
        if isinstance(self._page, JobView):
            return self._page.job_id
        about = self._page.row.about if self._page.row is not None else None
        return about.job_id if isinstance(about, BlockedKey) else about if isinstance(about, int) else None

    def _look_in(self) -> None:
        row, job = self._page.row, self._job()
        if isinstance(self._page, JobView) or row is None:
            return
        if job is not None:
            self._open(JobView(job))
        elif isinstance(self._page, QueuesPage):
            self._open(QueuePage(row.name))
        elif isinstance(self._page, AttentionPage) and row.about is not None:
            self._open(QueuePage(row.about))

    def _keys(self) -> None:
        if queue := self._queue():
            self._open(KeysPage(queue))

    def _dead(self) -> None:
        if queue := self._queue():
            self._open(DeadPage(queue))

    def _pause(self) -> None:
        queue = self._queue()
        look = self._reader.looks.last
        found = [each for each in look.overview.queues if each.queue == queue] if look is not None else []
        if queue is None or not found:
            return
        if found[0].paused:
            self._ask(f"Resume queue {queue!r}?", lambda app: app.resume(queue), f"queue {queue!r} gives out jobs")
        else:
            said = f"queue {queue!r} is paused: what runs goes on"
            self._ask(f"Pause queue {queue!r}?", lambda app: app.pause(queue), said)

    def _retry(self) -> None:
        job = self._job()
        if job is not None:
            self._ask(f"Retry job {job}?", lambda app: app.retry(job), lambda state: f"job {job} is {state}")
        elif isinstance(self._page, (QueuesPage, QueuePage)) and (queue := self._queue()):
            self._retry_all(queue)

    def _retry_page(self) -> None:
        if isinstance(self._page, DeadPage):
            self._retry_all(self._page.queue)

    def _retry_all(self, queue: str | None) -> None:
        """Every dead letter of a queue, or of all, once it was said how many these are."""
        of = "" if queue is None else f" of queue {queue!r}"
        self._say("counting ...")

        def retry(app: App, *, preview: bool) -> int:
            if queue is None:
                return app.retry(state="failed", preview=preview)
            return app.retry(queue=queue, state="failed", preview=preview)

        def ask(count: int) -> None:
            if not count:
                self._say(f"there are no dead letters{of}")
                return
            letters = _some(count, "dead letter")
            self._ask(
                f"Retry {letters}{of}?",
                lambda app: retry(app, preview=False),
                lambda done: f"{_some(done, 'job')} retried",
            )

        self._reader.act(lambda app: retry(app, preview=True), ask, self._refuse)

    def _release(self) -> None:
        row = self._page.row
        if row is None or not isinstance(row.about, BlockedKey) or (queue := self._page.queue) is None:
            return
        key = row.about.key
        if row.about.until is not None:
            self._say(f"key {key!r} is held until job {row.about.job_id} has run: r retries it now")
            return
        said = f"key {key!r} goes on; its dead letter stays one"
        self._ask(f"Release key {key!r} of queue {queue!r}?", lambda app: app.release(queue, key), said)

    def _ask(self, text: str, do: Callable[[App], Any], said: str | Callable[[Any], str]) -> None:
        def yes() -> None:
            self._say("...")
            self._reader.act(do, lambda done: self._say(said if isinstance(said, str) else said(done)), self._refuse)

        self._said = ("", "")
        self._question = Question(text, yes)

    def _say(self, text: str) -> None:
        self._said = (text, "cyan")

    def _refuse(self, text: str) -> None:
        self._said = (visible(text), "bold red")

    _ACTS: ClassVar[dict[str, Callable[[Top], None]]] = {
        "enter": _look_in,
        "h": _keys,
        "d": _dead,
        "D": lambda self: self._open(DeadPage()),
        "w": lambda self: self._open(WorkersPage()),
        "a": lambda self: self._open(AttentionPage()),
        "?": lambda self: self._open(HelpPage()),
        "p": _pause,
        "r": _retry,
        "R": _retry_page,
        "x": _release,
    }


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
