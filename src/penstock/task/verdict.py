"""What becomes of a job whose handler raised: retried, snoozed, discarded, cancelled, or dead-lettered."""

from __future__ import annotations

from typing import Literal, NamedTuple

from penstock.model.checks import storable_text
from penstock.model.error_text import describe, unwrap
from penstock.model.handler_signals import Discard, Retry, Snooze
from penstock.task.definition import TaskDefinition

__all__ = ["Verdict", "judge"]


class Verdict(NamedTuple):
    """The end of an attempt that did not succeed; `due_in` seconds until the next, where there is one. After a release
    the job is as it was before; a suspect is, too, but runs in no batch.
    """

    end: Literal["retry", "snooze", "failed", "cancelled", "discarded", "expired", "release", "suspect"]
    error: str | None = None
    due_in: float = 0.0


def judge(
    task: TaskDefinition,
    attempt: int,
    error: BaseException,
    unit: float,
    *,
    is_cancelled: bool = False,
    text: str | None = None,
) -> Verdict:
    """Decide, for attempt number `attempt` (the first is 1); `unit` is a random number from 0 to 1.

    A group with one member, as a TaskGroup raises it, is judged by that member, too. `text` describes an error whose
    traceback did not come along.
    """
    told = unwrap(error)
    if isinstance(told, Snooze):
        return Verdict("snooze", None, told.for_)
    if isinstance(told, Discard):
        return Verdict("discarded", storable_text(told.reason))
    if is_cancelled:
        return Verdict("cancelled", "stopped on request")
    text = describe(error) if text is None else text
    if isinstance(error, task.discard_on) or isinstance(told, task.discard_on):
        return Verdict("discarded", text)
    if not _may_retry(task, error, told) or attempt >= task.max_attempts:
        return Verdict("failed", text)
    if isinstance(told, Retry) and told.after is not None:
        return Verdict("retry", text, told.after)
    wait = task.backoff.wait(attempt, unit)
    return Verdict("retry", text if wait.problem is None else storable_text(f"{text}\n{wait.problem}"), wait.seconds)


def _may_retry(task: TaskDefinition, error: BaseException, told: BaseException) -> bool:
    kinds = task.retry_on
    return kinds is None or isinstance(told, Retry) or isinstance(error, kinds) or isinstance(told, kinds)
