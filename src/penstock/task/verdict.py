"""What becomes of a job whose handler raised: retried, snoozed, discarded, cancelled, or dead-lettered."""

from __future__ import annotations

import re
import traceback
from typing import Literal, NamedTuple

from penstock.model.checks import storable_text
from penstock.model.handler_signals import Discard, Retry, Snooze
from penstock.task.definition import TaskDefinition

__all__ = ["Verdict", "describe", "judge"]

_CALLERS = re.compile("/penstock/(worker|spark)/")


class Verdict(NamedTuple):
    """The end of an attempt that did not succeed; `due_in` seconds until the next, where there is one."""

    end: Literal["retry", "snooze", "failed", "cancelled", "discarded", "expired"]
    error: str | None = None
    due_in: float = 0.0


def judge(
    task: TaskDefinition, attempt: int, error: BaseException, unit: float, *, is_cancelled: bool = False
) -> Verdict:
    """Decide, for attempt number `attempt` (the first is 1); `unit` is a random number from 0 to 1."""
    if isinstance(error, Snooze):
        return Verdict("snooze", None, error.for_)
    if isinstance(error, Discard):
        return Verdict("discarded", storable_text(error.reason))
    if is_cancelled:
        return Verdict("cancelled", "stopped on request")
    if task.discard_on and isinstance(error, task.discard_on):
        return Verdict("discarded", describe(error))
    asked = error.after if isinstance(error, Retry) else None
    text = describe(error)
    may_retry = isinstance(error, Retry) or task.retry_on is None or isinstance(error, task.retry_on)
    if not may_retry or attempt >= task.max_attempts:
        return Verdict("failed", text)
    if asked is not None:
        return Verdict("retry", text, asked)
    wait = task.backoff.wait(attempt, unit)
    return Verdict("retry", text if wait.problem is None else storable_text(f"{text}\n{wait.problem}"), wait.seconds)


def describe(error: BaseException) -> str:
    """An exception as it is stored: what it says first, then where it came from, innermost call last."""
    try:
        summary = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        frames = traceback.extract_tb(error.__traceback__)
    except BaseException:  # An exception's own __str__ may raise anything, SystemExit too.
        return type(error).__name__
    # The frames of Penstock itself, which called the handler, tell a user nothing.
    own = [frame for frame in frames if not _CALLERS.search(frame.filename.replace("\\", "/"))]
    return storable_text(summary + ("\n" + "".join(traceback.format_list(own)).rstrip() if own else ""))
