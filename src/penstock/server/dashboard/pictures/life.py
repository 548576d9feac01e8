"""Where a job is in its life: the steps that it has taken, the one it is at, and those that are still to come.

    enqueued ─► blocked ─► scheduled ─► ready ─► running ─► ended

A job is blocked only where it came after others, and scheduled only where it waits for a time. What has ended without
a start skipped what is between.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from penstock.model.job_state import FINAL, State

__all__ = ["Step", "life_of"]


@dataclass(frozen=True, slots=True)
class Step:
    """One of them: when it was, and what else is to be said of it."""

    name: str
    is_at: Literal["past", "now", "ahead"]
    at: datetime | None = None
    note: str = ""


def life_of(job: Any) -> list[Step]:
    """The steps of a job, as it was read."""
    names = [State.BLOCKED] if job.after or job.state is State.BLOCKED else []
    names += [State.SCHEDULED] if job.run_at is not None or job.state is State.SCHEDULED else []
    if job.state not in FINAL or job.started_at is not None:
        names += [State.READY, State.RUNNING]
    elif job.state is State.EXPIRED:
        names += [State.READY]
    ended = job.state in FINAL
    here = len(names) if ended else names.index(job.state)
    steps = [Step("enqueued", "past", job.enqueued_at)]
    for number, name in enumerate(names):
        is_at: Literal["past", "now", "ahead"] = "past" if number < here else "now" if number == here else "ahead"
        at = job.run_at if name is State.SCHEDULED else None
        if name is State.RUNNING and is_at != "ahead":
            at = job.started_at
        steps.append(Step(name.value, is_at, at, _note(job, name, is_at)))
    steps.append(Step(job.state.value if ended else "ended", "now" if ended else "ahead", job.finished_at))
    return steps


def _note(job: Any, name: State, is_at: str) -> str:
    if name is State.BLOCKED:
        return f"after {len(job.after)} {'job' if len(job.after) == 1 else 'jobs'}"
    if name is State.SCHEDULED and is_at == "now" and job.failures:
        return "to be tried again"
    if name is State.SCHEDULED:
        return "for this time" if job.run_at is not None else "its load is paused"
    if name is State.RUNNING and job.attempt:
        return f"attempt {job.attempt}"
    return ""
