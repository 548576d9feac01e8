"""How long a call may take: made once, where the user calls, and kept by everything below.

A deadline travels with the thread of its call rather than as a parameter, so that nobody on the way can forget it: who
connects, asks, waits for a lock or pauses sees how much is left. Threads that work for a call are given its deadline by
`in_this_call`. A worker, its upkeep, Spark and `migrate` have none: they wait for as long as it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar, Token
from operator import attrgetter
from typing import ParamSpec, TypeVar

from penstock.clock import Clock, system

__all__ = [
    "Deadline",
    "begin_deadline",
    "current_deadline",
    "earliest",
    "in_this_call",
    "keeping",
    "within",
    "without_deadline",
    "writing_nothing",
]

P = ParamSpec("P")
T = TypeVar("T")


class Deadline:
    """When a call must have ended, and whether it may have written something.

    One that `renews` counts from the last answer: a call that works through many jobs goes on as long as it gets on.
    """

    __slots__ = ("_clock", "at", "may_have_written", "outer", "renews", "seconds")

    def __init__(
        self, seconds: float, clock: Clock = system, *, renews: bool = False, outer: Deadline | None = None
    ) -> None:
        self._clock = clock
        self.seconds = seconds
        self.at = clock.monotonic() + seconds
        self.renews = renews
        self.outer = outer
        self.may_have_written = False

    def left(self) -> float:
        """Seconds; none are left where they are negative."""
        return self.at - self._clock.monotonic()

    def renew(self) -> None:
        """An answer came: count anew, where that is meant."""
        if self.renews:
            self.at = self._clock.monotonic() + self.seconds

    def put_off(self, seconds: float) -> None:
        """So much of the time that has passed is not the call's."""
        self.at += seconds
        if self.outer is not None:
            self.outer.put_off(seconds)

    def note_written(self) -> None:
        """Something was sent that may be written by now."""
        self.may_have_written = True
        if self.outer is not None:
            self.outer.note_written()


def earliest(deadlines: Iterable[Deadline]) -> Deadline:
    """The one that ends first."""
    return min(deadlines, key=attrgetter("at"))


_current: ContextVar[Deadline | None] = ContextVar("penstock_deadline", default=None)


def current_deadline() -> Deadline | None:
    """The deadline of the call that this thread works for."""
    return _current.get()


def begin_deadline(seconds: float, clock: Clock = system, *, renews: bool = False) -> Deadline:
    """One of so many seconds from now; where the call around it has less, that call's."""
    outer = _current.get()
    inner = Deadline(seconds, clock, renews=renews, outer=outer)
    return inner if outer is None or inner.at < outer.at else outer


class within:  # noqa: N801  (reads as the words it stands for: `with within(seconds):`)
    """Give what the block does so many seconds; less where the call around it has less."""

    __slots__ = ("_token", "deadline")

    def __init__(self, seconds: float, clock: Clock = system, *, renews: bool = False) -> None:
        self.deadline = begin_deadline(seconds, clock, renews=renews)

    def __enter__(self) -> Deadline:
        self._token: Token[Deadline | None] = _current.set(self.deadline)
        return self.deadline

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        _current.reset(self._token)


class keeping:  # noqa: N801  (as above)
    """What the block does ends by a deadline that is not this thread's: it acts for several calls."""

    __slots__ = ("_deadline", "_token")

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def __enter__(self) -> None:
        self._token: Token[Deadline | None] = _current.set(self._deadline)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


class writing_nothing:  # noqa: N801  (as above)
    """What the block writes is not what the call was made for, and would be written without it."""

    __slots__ = ("_noted",)

    def __enter__(self) -> None:
        deadline, self._noted = _current.get(), list[tuple[Deadline, bool]]()
        while deadline is not None:
            self._noted.append((deadline, deadline.may_have_written))
            deadline = deadline.outer

    def __exit__(self, *_: object) -> None:
        for deadline, may_have_written in self._noted:
            deadline.may_have_written = may_have_written


class without_deadline:  # noqa: N801  (as above)
    """What the block does takes as long as it takes."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token: Token[Deadline | None] = _current.set(None)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def in_this_call(function: Callable[P, T]) -> Callable[P, T]:
    """The same function for another thread, with the deadline of this one."""
    deadline = _current.get()

    def run(*args: P.args, **named: P.kwargs) -> T:
        token = _current.set(deadline)
        try:
            return function(*args, **named)
        finally:
            _current.reset(token)

    return run
