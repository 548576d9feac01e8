"""Why a job is not running: one sentence for a person, and the facts behind it for a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.model.job_state import State

__all__ = ["Explanation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer of `app.explain`; as text it is its reason."""

    job_id: int
    state: State
    reason: str
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.reason
