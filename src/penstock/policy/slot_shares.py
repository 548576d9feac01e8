"""Slot shares: who may claim for a worker's slots, where it serves several databases. Fair, and no slot lies idle.

Each claimant (the worker's conductor of one database) asks before it claims, and what it is granted is reserved until
the claim has come back. While others want slots too, each is entitled to an equal number; what one does not use the
others may have at once, and what does not divide goes to the one whose last grant was longest ago: with one slot,
claimants take turns. A claimant that got less than it would take is hungry: it is called when it can have more.

Nobody waits for a database here: a reservation whose claim takes longer than a moment is no longer kept free, and a
hungry claimant that does not come when it is called, since its own database keeps it, is passed over until it asks
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

__all__ = ["ANSWER_SECONDS", "Grant", "Share", "SlotShares"]

# How long a claim under way, or one that was called, is waited for.
ANSWER_SECONDS = 0.05
# A slot whose job takes no longer than this is as good as free.
SOON_SECONDS = 0.025
# However long a claim once took, no more than this is expected of the next.
LONGEST_CLAIM_SECONDS = 1.0
WEIGHT = 1 / 4


class Grant(NamedTuple):
    """How many slots to claim for, and how many the claimant is entitled to in all, those it uses too."""

    slots: int
    entitled: int


@dataclass(slots=True, eq=False)
class Share:
    """What one claimant has of the slots. The slot pool keeps `running` and `waiting`."""

    # Slots at work for it, and claimed jobs that wait for one.
    running: int = 0
    waiting: int = 0
    # How long its jobs take, as far as that is known, and its claims.
    job_seconds: float = inf
    claim_seconds: float = 0.0
    reserved: int = 0
    reserved_at: float = 0.0
    is_hungry: bool = False
    called_at: float | None = None
    # Numbers that only grow: when it was granted slots last, and when a job of it was started last.
    served: int = 0
    started: int = 0


class SlotShares:
    """The slots of one worker. Not for several threads at once; times are monotonic seconds."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.shares: list[Share] = []
        self._served = 0
        self._started = 0

    def join(self) -> Share:
        """A share for one more claimant."""
        share = Share()
        self.shares.append(share)
        return share

    def grantable(self, share: Share, now: float) -> Grant:
        """What the claimant would get now."""
        entitled = self._entitled(share, now)
        used = _used(share, now)
        free = self.concurrency - used
        soon = max(SOON_SECONDS, share.claim_seconds)
        for other in self.shares:
            if other is not share:
                within = min(_used(other, now), entitled[other])
                # What it has beyond its entitlement is free when those jobs end: before the claim is back, maybe.
                ends_soon = other.job_seconds <= soon
                free -= within if ends_soon else max(other.running + _reserved(other, now), within)
        return Grant(max(min(entitled[share] - used, free), 0), entitled[share])

    def ask(self, share: Share, now: float) -> Grant:
        """Reserve what the claimant gets now. Where that is less than it would take, it is hungry."""
        share.reserved = 0
        share.called_at = None
        share.is_hungry = False
        grant = self.grantable(share, now)
        # With jobs of its own that wait it is busy enough.
        share.is_hungry = not share.waiting and share.running + grant.slots < self.concurrency
        if grant.slots:
            self._served += 1
            share.served = self._served
            share.reserved, share.reserved_at = grant.slots, now
        return grant

    def note_claimed(self, share: Share, now: float, *, is_dry: bool) -> None:
        """The claim is done, and what it brought counts as waiting: the rest is free. Dry: there was nothing more."""
        if share.reserved:
            took = min(now - share.reserved_at, LONGEST_CLAIM_SECONDS)
            share.claim_seconds += (took - share.claim_seconds) * WEIGHT
        share.reserved = 0
        if is_dry:
            share.is_hungry = False

    def call_hungry(self, now: float) -> list[Share]:
        """The hungry that could have something now, each only once: whoever asks wakes them."""
        called = []
        for share in self.shares:
            if share.is_hungry and share.called_at is None and self.grantable(share, now).slots:
                share.called_at = now
                called.append(share)
        return called

    def patience(self, share: Share, now: float) -> float | None:
        """Seconds after which a hungry claimant should ask again without a call: one it waits for may not have come."""
        if not share.is_hungry:
            return None
        waited_for = [
            at + ANSWER_SECONDS - now
            for other in self.shares
            if other is not share
            for at in (other.reserved_at if other.reserved else None, other.called_at if other.is_hungry else None)
            if at is not None and at + ANSWER_SECONDS > now
        ]
        return min(waited_for, default=None)

    def in_start_order(self, shares: Iterable[Share]) -> list[Share]:
        """The order in which claimants with waiting jobs start one: fewest slots first, then who waited longest."""
        return sorted(shares, key=lambda share: (share.running, share.started))

    def note_start(self, share: Share) -> None:
        """Note that a slot has begun to work for a claimant."""
        self._started += 1
        share.started = self._started

    def _entitled(self, asking: Share, now: float) -> dict[Share, int]:
        """Equal parts, but no more than each would take; what does not divide goes to who was served longest ago."""
        most = self.concurrency
        demands = {
            share: most if share is asking or _is_hungry(share, now) else min(_used(share, now), most)
            for share in self.shares
        }
        entitled = {}
        left = most
        unsure: Sequence[Share] = sorted(self.shares, key=demands.__getitem__)
        while unsure and demands[unsure[0]] <= left // len(unsure):
            modest, unsure = unsure[0], unsure[1:]
            entitled[modest] = demands[modest]
            left -= demands[modest]
        for rank, share in enumerate(sorted(unsure, key=lambda share: share.served)):
            entitled[share] = left // len(unsure) + (rank < left % len(unsure))
        return entitled


def _used(share: Share, now: float) -> int:
    return share.running + share.waiting + _reserved(share, now)


def _reserved(share: Share, now: float) -> int:
    return share.reserved if now - share.reserved_at < ANSWER_SECONDS else 0


def _is_hungry(share: Share, now: float) -> bool:
    return share.is_hungry and (share.called_at is None or now - share.called_at < ANSWER_SECONDS)
