"""The public calls of an app: each has a deadline from the moment it is made, and says what it may have changed.

`question` only reads. `change` has its time as a whole. `change_in_steps` works through many jobs, or over all shards:
each of its steps has that time. Changes are acts, which are entered in the audit (`auditing`).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

from penstock.app.auditing import audited, record_of
from penstock.clock import system
from penstock.deadline import Deadline, current_deadline, within
from penstock.errors import PartitionUnavailable
from penstock.model.wrong_calls import check_call
from penstock.storage.connection.error_meaning import refusal

__all__ = ["Bounded", "change", "change_in_steps", "locked", "question"]

P = ParamSpec("P")
T = TypeVar("T")
# Between two looks whether waiting for a lock still is excused.
STEP_SECONDS = 0.1


class Bounded(within):
    """What the block does has so many seconds; an error is one of ours, and says whether something may be written."""

    __slots__ = ("_is_change",)

    def __init__(self, seconds: float, *, is_change: bool = True, renews: bool = False) -> None:
        super().__init__(seconds, renews=renews)
        self._is_change = is_change

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        super().__exit__(kind, error, trace)
        if error is None:
            return
        if self._is_change and self.deadline.may_have_written and isinstance(error, PartitionUnavailable):
            error.outcome = "unknown"
        if (told := refusal(error)) is not None:
            raise told from error


def _bounded(function: Callable[P, T], *, is_change: bool, is_in_steps: bool = False) -> Callable[P, T]:
    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> T:
        # Before the call begins, and creates a database.
        check_call(function, None, args, named)
        app = cast("Any", args[0])
        # A preview only looks.
        is_act = is_change and not named.get("preview", False)
        with app._access.begin_call(is_change=is_change, is_in_steps=is_in_steps, creates=is_act):
            if not is_act:
                return function(*args, **named)
            with audited(record_of(function, args, named)) as record:
                done = function(*args, **named)
            record.end("done", done)
            return done

    return call


def question(function: Callable[P, T]) -> Callable[P, T]:
    """A call that only reads."""
    return _bounded(function, is_change=False)


def change(function: Callable[P, T]) -> Callable[P, T]:
    """A call that changes something."""
    return _bounded(function, is_change=True)


def change_in_steps(function: Callable[P, T]) -> Callable[P, T]:
    """A call that changes much: it may go on for as long as it gets on."""
    return _bounded(function, is_change=True, is_in_steps=True)


@contextmanager
def locked(
    lock: threading.RLock | threading.Lock, doing: str, *, is_excused: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Hold a lock, and wait for it no longer than this call may take: who has it may have more time.

    While what that does is excused, the waiting is not counted.
    """
    deadline = current_deadline()
    if deadline is None:
        lock.acquire()
    else:
        _acquire(lock, doing, deadline, is_excused)
    try:
        yield
    finally:
        lock.release()


def _acquire(
    lock: threading.RLock | threading.Lock, doing: str, deadline: Deadline, is_excused: Callable[[], bool]
) -> None:
    while True:
        began_at, excused = system.monotonic(), is_excused()
        if lock.acquire(timeout=min(STEP_SECONDS, max(deadline.left(), 0.0))):
            break
        if excused:
            deadline.put_off(system.monotonic() - began_at)
        elif deadline.left() <= 0.0:
            raise PartitionUnavailable(
                f"another thread was still {doing} after {deadline.seconds:g} s; see that the database runs and "
                "accepts connections, then call again"
            )
    if excused:
        deadline.put_off(system.monotonic() - began_at)
