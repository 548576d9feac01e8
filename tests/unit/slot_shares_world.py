"""A worker with several claimants, in simulated time: what the policy of slots makes of them.

Each claimant has a backlog, jobs of one length, and a database that answers a claim after some time, or never. The
world starts jobs and claims as a worker does; nothing here decides who may claim how much.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from penstock.policy.slot_shares import Share, SlotShares

__all__ = ["SimulatedClaimant", "World"]

HORIZON_SECONDS = 0.025
POLL_SECONDS = 1.0


@dataclass(eq=False)
class SimulatedClaimant:
    """One database: how many jobs wait there, how long each runs, how long a claim takes, and when it hangs."""

    backlog: int
    job_seconds: float
    claim_seconds: float = 0.001
    hangs_at: float = float("inf")
    share: Share = field(init=False)
    is_claiming: bool = False
    looks: int = 0
    slot_seconds: float = 0.0
    started: list[float] = field(default_factory=list)
    most_waiting: int = 0


class World:
    """Runs until a time, or until nothing happens any more."""

    def __init__(self, concurrency: int, *claimants: SimulatedClaimant) -> None:
        self.slots = SlotShares(concurrency)
        self.claimants = claimants
        self.now = 0.0
        self.most_running = 0
        self._events: list[tuple[float, int, str, SimulatedClaimant, int]] = []
        self._numbers = count()
        for claimant in claimants:
            claimant.share = self.slots.join()
            claimant.share.job_seconds = claimant.job_seconds
            self._at(0.0, "look", claimant)

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= until:
            self.now, _, event, claimant, number = heappop(self._events)
            if event == "look":
                if number in (0, claimant.looks):
                    self._look(claimant)
            elif event == "claimed":
                self._take_in(claimant, number)
            else:
                claimant.share.running -= 1
                self._look(claimant)
            self._start()
            for share in self.slots.call_hungry(self.now):
                self._at(self.now, "look", next(claimant for claimant in self.claimants if claimant.share is share))

    def _at(self, time: float, event: str, claimant: SimulatedClaimant, number: int = 0) -> None:
        heappush(self._events, (time, next(self._numbers), event, claimant, number))

    def _look(self, claimant: SimulatedClaimant) -> None:
        if claimant.is_claiming:
            return
        grant = self.slots.ask(claimant.share, self.now)
        ahead = 0
        if claimant.job_seconds < HORIZON_SECONDS:
            ahead = max(
                int(grant.entitled * HORIZON_SECONDS / claimant.job_seconds) - grant.slots - claimant.share.waiting, 0
            )
        if grant.slots or (ahead and claimant.started and self.now - claimant.started[-1] < 0.05):
            claimant.is_claiming = True
            if self.now < claimant.hangs_at:
                self._at(self.now + claimant.claim_seconds, "claimed", claimant, grant.slots * 1_000_000 + ahead)
            return
        patience = self.slots.patience(claimant.share, self.now)
        self._look_in(claimant, POLL_SECONDS if patience is None else patience + 1e-6)

    def _look_in(self, claimant: SimulatedClaimant, seconds: float) -> None:
        claimant.looks += 1
        self._at(self.now + seconds, "look", claimant, claimant.looks)

    def _take_in(self, claimant: SimulatedClaimant, asked: int) -> None:
        claimant.is_claiming = False
        slots, ahead = divmod(asked, 1_000_000)
        taken = min(slots + ahead, claimant.backlog)
        claimant.backlog -= taken
        claimant.share.waiting += taken
        self.slots.note_claimed(claimant.share, self.now, is_dry=taken < max(slots, 1))
        self._start()
        claimant.most_waiting = max(claimant.most_waiting, claimant.share.waiting)
        if taken:
            self._look(claimant)
        else:
            self._look_in(claimant, POLL_SECONDS)

    def _start(self) -> None:
        while sum(claimant.share.running for claimant in self.claimants) < self.slots.concurrency:
            ready = self.slots.in_start_order(claimant.share for claimant in self.claimants if claimant.share.waiting)
            if not ready:
                break
            claimant = next(claimant for claimant in self.claimants if claimant.share is ready[0])
            claimant.share.waiting -= 1
            claimant.share.running += 1
            self.slots.note_start(claimant.share)
            claimant.started.append(self.now)
            claimant.slot_seconds += claimant.job_seconds
            self._at(self.now + claimant.job_seconds, "ended", claimant)
        self.most_running = max(self.most_running, sum(claimant.share.running for claimant in self.claimants))
