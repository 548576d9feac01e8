"""How the tokens of a queue's total_rate are shared between its partitions: they go to where work waits.

A start takes a token. What came into the queue's bucket goes, several times a second, to the partitions with jobs that
wait: equally many to each, counting what it still has, and of what is left over one to each, first to who has been
without for longest. A partition that did not start all that it had gets no more than twice what it started: its keys
are busy, or no worker has a slot. What has run out unused it gives back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from penstock.policy.permits import level_of

__all__ = ["TokenUse", "share_tokens"]


@dataclass(frozen=True, slots=True)
class TokenUse:
    """What a partition does with its tokens: how many it has, how many jobs it started since it got some, and wait."""

    partition: int
    tokens: int
    used: int
    waiting: int
    waited_seconds: float | None = None
    # Since it got some, or was told to give them back.
    granted_seconds: float | None = None
    has_expired: bool = False

    @property
    def wanted(self) -> int:
        """How many it could use, with those it has."""
        return min(self.waiting, max(2 * self.used, 1)) if self.tokens else self.waiting

    @property
    def without_seconds(self) -> float:
        """For how long jobs have waited here since it got any."""
        granted = inf if self.granted_seconds is None else self.granted_seconds
        return min(self.waited_seconds or 0.0, granted)


def share_tokens(room: int, uses: Sequence[TokenUse]) -> dict[int, int]:
    """How many more each partition gets, by partition, where that is any; 0: it gives back what it has."""
    grants = {use.partition: 0 for use in uses if use.tokens and use.has_expired}
    wanting = [use for use in uses if use.wanted > use.tokens and use.partition not in grants]
    wanting.sort(key=lambda use: -use.without_seconds)
    level = level_of(room + sum(use.tokens for use in wanting), [use.wanted for use in wanting])
    for most in (level, level + 1):
        for use in wanting:
            had = use.tokens + grants.get(use.partition, 0)
            more = min(min(use.wanted, most) - had, room)
            if more > 0:
                grants[use.partition] = grants.get(use.partition, 0) + more
                room -= more
    return grants
