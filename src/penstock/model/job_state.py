"""The states of a job.

    scheduled ──┐ due                        ┌─► succeeded
                ▼                            ├─► failed      dead letter: out of attempts
    blocked ─► ready ────► running ──────────┼─► discarded   its handler gave it up
                │  ▲          │ retry,       └─► cancelled
                │  └──────────┴ snooze, rescue  (by way of scheduled, where there is a delay)
                ├────► expired                past max_wait before it could start
                └────► cancelled

A state compares equal to its name. The final ones never change by themselves; only `retry` brings a dead letter back,
and with it, as blocked, its children that were cancelled because of it.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["FINAL", "OUTCOME", "STATE_OF_OUTCOME", "State"]


class State(StrEnum):
    """Where a job stands."""

    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"
    EXPIRED = "expired"


# How the end of a job is stored. The numbers are in every database that exists: add to them, never change one.
OUTCOME: dict[State, int] = {
    State.SUCCEEDED: 0,
    State.FAILED: 1,
    State.CANCELLED: 2,
    State.DISCARDED: 3,
    State.EXPIRED: 4,
}

STATE_OF_OUTCOME: dict[int, State] = {number: state for state, number in OUTCOME.items()}

FINAL: frozenset[State] = frozenset(OUTCOME)
