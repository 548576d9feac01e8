"""Hooks: functions an application wants called when something becomes of a job.

They are called after the fact has been committed, one after the other, in a thread that does nothing else: a hook that
is slow, or hangs, keeps no job waiting. Where they are so slow that very many events wait, further ones are dropped,
which is logged. `started` is called just before the handler runs, by whatever runs it. An async hook is awaited on the
worker's event loop, as async handlers are. A hook that raises is logged and costs the job nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

from penstock.errors import InvalidInput
from penstock.forking import renew_in_children
from penstock.log_records import log_about
from penstock.task.own_loop import Submit, run_on_own_loop
from penstock.task.redeclared import is_declared_again

__all__ = ["Event", "EventName", "Hooks"]

log = logging.getLogger("penstock")
# So many events may wait for hooks that are slow.
MOST_WAITING = 100_000
# A thread with nothing to tell for so long ends.
IDLE_SECONDS = 1.0

EventName = Literal["started", "succeeded", "retried", "failed", "rescued"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What a hook is told. `rescued` speaks of many jobs at once and names only their number."""

    name: EventName
    job_id: int | None = None
    queue: str | None = None
    task: str | None = None
    attempt: int | None = None
    error: str | None = None
    jobs: int = 1


class Hooks:
    """The functions registered, by event. Safe to use from any number of threads."""

    def __init__(self) -> None:
        self._functions: dict[str, list[Callable[[Event], Any]]] = {}
        # Whether anybody wants to know of starts: asked for each job.
        self.wants_started = False
        self._waiting: deque[Event] = deque()
        self._dropped = 0
        self._thread: threading.Thread | None = None
        # The event loops of the workers that are at work.
        self._loops: list[Submit] = []
        # Guards the above, and is notified when something is to be told and when all was.
        self._changed = threading.Condition()
        renew_in_children(self, Hooks._renew_after_fork)

    def add(self, event: str, function: Callable[[Event], Any]) -> None:
        """Register a function; the same again replaces it."""
        if event not in get_args(EventName):
            raise InvalidInput("event", f"{event!r} is unknown; the events are {', '.join(get_args(EventName))}")
        if not callable(function):
            raise InvalidInput(
                "function",
                f"a function of the event is needed, not {type(function).__name__}; write app.on({event!r}, note)",
            )
        others = [each for each in self._functions.get(event, ()) if not is_declared_again(each, function)]
        self._functions[event] = [*others, function]
        self.wants_started = "started" in self._functions

    def wants(self, event: EventName) -> bool:
        """Whether anybody listens: events that nobody wants are not made."""
        return event in self._functions

    def tell(self, event: Event) -> None:
        """Have everybody told who listens, without waiting for it."""
        if event.name not in self._functions:
            return
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                self._dropped += 1
                if self._dropped == 1:
                    log.error("hooks are too slow: %d events wait for them, and further ones are dropped", MOST_WAITING)
                return
            self._waiting.append(event)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._tell_waiting, name="penstock-hooks", daemon=True)
                self._thread.start()
            elif len(self._waiting) == 1:
                self._changed.notify_all()

    def wait_until_told(self, seconds: float) -> bool:
        """Wait so long until everybody has been told of everything so far; whether they were."""
        with self._changed:
            if self._changed.wait_for(lambda: not self._waiting, seconds):
                return True
            log.warning("hooks did not end in time; of %d events they were not told", len(self._waiting))
            return False

    @contextmanager
    def awaited_on(self, submit: Submit) -> Iterator[None]:
        """For the block there is an event loop for async hooks."""
        with self._changed:
            self._loops = [*self._loops, submit]
        try:
            yield
        finally:
            with self._changed:
                self._loops = [each for each in self._loops if each is not submit]

    def call(self, event: Event) -> None:
        """Tell everybody who listens, now. Not on an event loop: `call_async` is for that."""
        for function in self._functions.get(event.name, ()):
            try:
                told = function(event)
                if inspect.isawaitable(told):
                    loops = self._loops
                    submit = loops[-1] if loops else run_on_own_loop
                    if (error := submit(_await(told)).result()) is not None:
                        raise error
            except BaseException:  # Not even SystemExit of a hook may end the worker.
                _log_raised(event)

    async def call_async(self, event: Event) -> None:
        """The same on the event loop that this is awaited on."""
        for function in self._functions.get(event.name, ()):
            try:
                told = function(event)
                if inspect.isawaitable(told):
                    await told
            except asyncio.CancelledError:  # The job was interrupted meanwhile.
                raise
            except BaseException:
                _log_raised(event)

    def _renew_after_fork(self) -> None:
        """In a forked child: what is to be told is told by the parent."""
        self._changed = threading.Condition()
        self._waiting = deque()
        self._dropped = 0
        self._thread = None
        self._loops = []

    def _tell_waiting(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._waiting, IDLE_SECONDS):
                    self._thread = None
                    return
                event = self._waiting[0]
            self.call(event)
            with self._changed:
                self._waiting.popleft()
                if not self._waiting:
                    if self._dropped:
                        log.error("hooks were too slow: %d events were dropped", self._dropped)
                        self._dropped = 0
                    self._changed.notify_all()


def _log_raised(event: Event) -> None:
    fields = {"job_id": event.job_id, "queue": event.queue, "task": event.task, "attempt": event.attempt}
    log_about(
        {name: value for name, value in fields.items() if value is not None},
        logging.ERROR,
        "a hook for %r raised",
        event.name,
        exc_info=True,
    )


async def _await(told: Awaitable[Any]) -> BaseException | None:
    """What an async hook raised: handed over as a value, for SystemExit would end the loop."""
    try:
        await told
    except BaseException as error:
        return error
    return None
