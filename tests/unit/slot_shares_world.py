"""A worker with several sites, in simulated time: what the policy of slots makes of them.

Each site has a backlog, jobs of one length, and a database that answers a claim after some time, or never. The world
starts jobs and claims as a worker does; nothing here decides who may claim how much.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from penstock.policy.slot_shares import Share, SlotShares

__all__ = ["SimulatedSite", "World"]

HORIZON_SECONDS = 0.025
POLL_SECONDS = 1.0


@dataclass(eq=False)
class SimulatedSite:
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

    def __init__(self, concurrency: int, *sites: SimulatedSite) -> None:
        self.slots = SlotShares(concurrency)
        self.sites = sites
        self.now = 0.0
        self.most_running = 0
        self._events: list[tuple[float, int, str, SimulatedSite, int]] = []
        self._numbers = count()
        for site in sites:
            site.share = self.slots.join()
            site.share.job_seconds = site.job_seconds
            self._at(0.0, "look", site)

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= until:
            self.now, _, event, site, number = heappop(self._events)
            if event == "look":
                if number in (0, site.looks):
                    self._look(site)
            elif event == "claimed":
                self._take_in(site, number)
            else:
                site.share.running -= 1
                self._look(site)
            self._start()
            for share in self.slots.call_hungry(self.now):
                self._at(self.now, "look", next(site for site in self.sites if site.share is share))

    def _at(self, time: float, event: str, site: SimulatedSite, number: int = 0) -> None:
        heappush(self._events, (time, next(self._numbers), event, site, number))

    def _look(self, site: SimulatedSite) -> None:
        if site.is_claiming:
            return
        grant = self.slots.ask(site.share, self.now)
        ahead = 0
        if site.job_seconds < HORIZON_SECONDS:
            ahead = max(int(grant.entitled * HORIZON_SECONDS / site.job_seconds) - grant.slots - site.share.waiting, 0)
        if grant.slots or (ahead and site.started and self.now - site.started[-1] < 0.05):
            site.is_claiming = True
            if self.now < site.hangs_at:
                self._at(self.now + site.claim_seconds, "claimed", site, grant.slots * 1_000_000 + ahead)
            return
        patience = self.slots.patience(site.share, self.now)
        self._look_in(site, POLL_SECONDS if patience is None else patience + 1e-6)

    def _look_in(self, site: SimulatedSite, seconds: float) -> None:
        site.looks += 1
        self._at(self.now + seconds, "look", site, site.looks)

    def _take_in(self, site: SimulatedSite, asked: int) -> None:
        site.is_claiming = False
        slots, ahead = divmod(asked, 1_000_000)
        taken = min(slots + ahead, site.backlog)
        site.backlog -= taken
        site.share.waiting += taken
        self.slots.note_claimed(site.share, self.now, is_dry=taken < max(slots, 1))
        self._start()
        site.most_waiting = max(site.most_waiting, site.share.waiting)
        if taken:
            self._look(site)
        else:
            self._look_in(site, POLL_SECONDS)

    def _start(self) -> None:
        while sum(site.share.running for site in self.sites) < self.slots.concurrency:
            ready = self.slots.in_start_order(site.share for site in self.sites if site.share.waiting)
            if not ready:
                break
            site = next(site for site in self.sites if site.share is ready[0])
            site.share.waiting -= 1
            site.share.running += 1
            self.slots.note_start(site.share)
            site.started.append(self.now)
            site.slot_seconds += site.job_seconds
            self._at(self.now + site.job_seconds, "ended", site)
        self.most_running = max(self.most_running, sum(site.share.running for site in self.sites))
