"""Hooks: functions an application wants called when something becomes of a job.

They are called by the worker after the fact has been committed (`started`: just before the handler runs). A hook that
raises is logged and costs the job nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from penstock.errors import InvalidJob

__all__ = ["Event", "EventName", "Hooks"]

log = logging.getLogger("penstock")
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
    """The functions registered, by event."""

    def __init__(self) -> None:
        self._functions: dict[str, list[Callable[[Event], Any]]] = {}

    def add(self, event: str, function: Callable[[Event], Any]) -> None:
        """Register a function."""
        if event not in get_args(EventName):
            raise InvalidJob("event", f"{event!r} is unknown; the events are {', '.join(get_args(EventName))}")
        if not callable(function):
            raise InvalidJob("function", f"a function of the event is needed, not {type(function).__name__}")
        self._functions.setdefault(event, []).append(function)

    def wants(self, event: EventName) -> bool:
        """Whether anybody listens: events that nobody wants are not made."""
        return event in self._functions

    def call(self, event: Event) -> None:
        """Tell everybody who listens."""
        for function in self._functions.get(event.name, ()):
            try:
                function(event)
            except BaseException:  # Not even SystemExit of a hook may end the worker.
                log.exception("a hook for %r raised", event.name)
