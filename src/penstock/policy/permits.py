"""How the permits of a queue are shared between its partitions: they follow the work.

A partition runs at most as many jobs as it has permits. Each wants one for each job that runs or waits; where there
are too few, all get equally many, as far as they want them. Where there are fewer than partitions with work they take
turns: a permit goes to the partition that has been without one for longest. What nobody wants stays where it is, but
each partition that jobs are written to has one if there are enough, so that what comes there starts at once.

Where more run than there are permits, for there were more before, nobody has one until fewer do.

A partition that has permits to spare while jobs wait cannot use them: their keys are busy, or no worker has a slot. It
wants one more than it uses, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["PermitUse", "level_of", "share_permits"]

# Jobs that wait for so long beside permits to spare are not about to start.
UNUSED_SECONDS = 0.3
# So long a partition keeps a permit that others have none of.
TURN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class PermitUse:
    """What a partition does with its permits: how many it has, how many jobs run and wait, how long the first has."""

    partition: int
    permits: int
    running: int
    waiting: int
    waited_seconds: float | None = None
    # Since it got other permits.
    changed_seconds: float = 0.0
    # How many may run in it by the limit of each partition.
    limit: int | None = None
    # Whether jobs are written to it: what comes elsewhere are the last of those that were.
    is_current: bool = True

    @property
    def wanted(self) -> int:
        """How many it could use."""
        wanted = self.running + self.waiting
        if self.waiting and self.permits > self.running and (self.waited_seconds or 0.0) > UNUSED_SECONDS:
            wanted = self.running + 1
        return wanted if self.limit is None else min(wanted, self.limit)

    @property
    def without_seconds(self) -> float:
        """For how long jobs have waited here without any permit."""
        return min(self.waited_seconds or 0.0, self.changed_seconds)


def share_permits(permits: int, uses: Sequence[PermitUse]) -> dict[int, int]:
    """How many each partition is to have, by partition; in all no more than there are."""
    if sum(use.running for use in uses) > permits:
        return {use.partition: 0 for use in uses}
    level = level_of(permits, [use.wanted for use in uses])
    shares = {use.partition: min(use.wanted, level) for use in uses}
    left = permits - sum(shares.values())
    wanting = [use for use in uses if use.wanted > level]
    for use in sorted(wanting, key=_by_turn if level == 0 else lambda use: use.permits <= level)[:left]:
        shares[use.partition] += 1
    return _keep_the_rest(permits - sum(shares.values()), shares, uses)


def level_of(permits: int, wanted: Sequence[int]) -> int:
    """How many each may have at most, so that all that is wanted up to that can be had."""
    level = 0
    left = permits
    for index, each in enumerate(sorted(wanted)):
        sharing = len(wanted) - index
        step = min(each - level, left // sharing)
        level += step
        left -= step * sharing
        if level < each:
            break
    return level


def _by_turn(use: PermitUse) -> tuple[int, float]:
    """Who is in the middle of a turn, then who has been without for longest, then whose turn ended last."""
    if use.permits and use.changed_seconds < TURN_SECONDS:
        return 0, use.changed_seconds
    return (2, use.changed_seconds) if use.permits else (1, -use.without_seconds)


def _keep_the_rest(left: int, shares: Mapping[int, int], uses: Sequence[PermitUse]) -> dict[int, int]:
    """Nobody wants these: each partition has one if it can be, what is left stays, and what nobody had is spread."""
    kept = dict(shares)
    most = {use.partition: left + kept[use.partition] if use.limit is None else use.limit for use in uses}

    def give(partition: int, up_to: int) -> None:
        nonlocal left
        more = max(0, min(up_to, most[partition]) - kept[partition])
        kept[partition] += min(more, left)
        left -= min(more, left)

    current = [use for use in uses if use.is_current]
    for use in current:
        give(use.partition, 1)
    for use in current:
        give(use.partition, use.permits)
    # The rest is spread evenly: all are raised to one level, and of what cannot be divided the first have one more.
    level = _level_to_fill(left, [(kept[use.partition], most[use.partition]) for use in current])
    for up_to in (level, level + 1):
        for use in current:
            give(use.partition, up_to)
    return kept


def _level_to_fill(left: int, shares: Sequence[tuple[int, int]]) -> int:
    """Up to how many each share can be raised, none above its own most, with so many in all. By halves: a limit may be
    two billion.
    """
    low, high = 0, left + max((kept for kept, _ in shares), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(max(0, min(middle, most) - kept) for kept, most in shares) <= left:
            low = middle
        else:
            high = middle - 1
    return low
