"""The attempts of a job over the time that it has been there: a mark for each that failed, a bar for the last one.

When an attempt that failed began is not kept; of the last one it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.drawing.formatting import UNKNOWN, duration, instant, plain
from penstock.model.job_state import State

__all__ = ["MOST_SHOWN", "Attempt", "attempts_of", "draw_attempts"]

MOST_SHOWN = 30


@dataclass(frozen=True, slots=True)
class Attempt:
    """One of them. `said` is the first line of its error, `calls` the others; `began_at` is known of the last only."""

    number: int
    outcome: str
    worker: str | None
    began_at: datetime | None = None
    ended_at: datetime | None = None
    said: str | None = None
    calls: str = ""


def attempts_of(job: Any) -> list[Attempt]:
    """The last attempts, the newest first."""
    found = [_failed(each) for each in job.failures[-MOST_SHOWN:]]
    if job.state in (State.RUNNING, State.SUCCEEDED):
        found.append(Attempt(job.attempt, job.state.value, job.worker, job.started_at, job.finished_at))
    return found[::-1]


def draw_attempts(job: Any, attempts: Sequence[Attempt], now: datetime) -> str:
    """A line from when the job was enqueued until it ended, or until now."""
    begin: datetime = job.enqueued_at
    end: datetime = max(job.finished_at or now, *(each.ended_at or begin for each in attempts), begin)
    whole = max((end - begin).total_seconds(), 1e-6)

    def place(at: datetime) -> float:
        return min(1.0, max(0.0, (at - begin).total_seconds() / whole))

    drawn = ""
    for each in attempts:
        left = place(each.began_at or each.ended_at or end)
        width = "" if each.began_at is None else f";width:{place(each.ended_at or end) - left:.2%}"
        late = " late" if left > 0.6 else ""
        tip = f"attempt {each.number} {each.outcome}&#10;{_told(each)}"
        drawn += f'<i class="{each.outcome}{late}" style="left:{left:.2%}{width}" data-tip="{tip}"></i>'
    failed = sum(each.outcome == "failed" for each in attempts)
    says = f"{len(attempts)} attempts in {duration(whole)}, of which {failed} failed"
    return (
        f'<div class="attempts-line" role="img" aria-label="{plain(says)}"><div>{drawn}</div></div>'
        f'<div class="axis"><span>enqueued</span><span>{"ended" if job.finished_at else "now"}, '
        f"after {duration(whole)}</span></div>"
    )


def _failed(failure: Any) -> Attempt:
    said, _, calls = (failure.error or "").partition("\n")
    error = None if failure.error is None else said
    return Attempt(failure.attempt, "failed", failure.worker, None, failure.at, error, calls)


def _told(attempt: Attempt) -> str:
    if attempt.began_at is not None and attempt.ended_at is not None:
        return f"it took {duration((attempt.ended_at - attempt.began_at).total_seconds())}"
    at = attempt.ended_at or attempt.began_at
    return UNKNOWN if at is None else f"{instant(at)} UTC"
