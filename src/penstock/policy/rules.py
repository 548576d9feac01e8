"""What an owned queue asks of the owner of its partitions, and what the owner has to know of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Rules", "WaitingJob"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The options of a queue. `per_key` None: its keys have no order, and a retry holds nothing."""

    per_key: int | None
    limit: int | None = None
    rate: float | None = None
    per_key_rate: float | None = None
    holds_on_retry: bool = True
    halts_on_dead: bool = False
    is_fair: bool = False
    weights: Mapping[str, float] = field(default_factory=dict)


class WaitingJob(NamedTuple):
    """A job as `ready` has it.

    The least rank starts first: when it became ready, in seconds, and a minute more for each priority. Within a key
    and a priority it is (pos, id) that counts. `is_known`: there is a handler for it here.
    """

    id: int
    key: bytes | None
    priority: int
    pos: int
    rank: float
    tenant: str
    epoch: int
    is_known: bool
