"""What is not found may be on a shard that does not answer: then nobody can say that there is none."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import NotFound, PenstockError
from penstock.server.problem import ProblemError

__all__ = ["missing"]


def missing(what: str, remedy: str, unavailable: Sequence[str]) -> PenstockError:
    """The refusal to show it."""
    if unavailable:
        away = f"shard {', '.join(unavailable)} does not answer"
        return ProblemError("partition-unavailable", f"{what} is not on the shards that answer, and {away}; come again")
    return NotFound(f"there is no {what}; {remedy}")
