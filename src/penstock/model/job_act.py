"""What became of an act on one of several jobs that were named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.model.job_state import State

__all__ = ["ActOutcome", "JobAct"]

ActOutcome = Literal["done", "not-in-state", "unknown", "unavailable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAct:
    """One job of those that were named, and the state it is in now.

    `outcome` is "done"; "not-in-state" where there was nothing to do, as it had ended, say; "unknown" where there is no
    such job; "unavailable" where its shard does not answer, so that nobody knows.
    """

    job_id: int
    outcome: ActOutcome
    state: State | None = None
