"""The caps of a worker: how many jobs of a queue it has at most, on all its databases together.

Each conductor asks before it claims how many more it may take, and what it is told is reserved until the claim has come
back. Between several databases a queue's cap is shared as slots are. What a conductor has whose database does not
answer counts only as far as it runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from penstock.policy.slot_shares import Share, SlotShares
from penstock.worker.served_queues import ServedQueue

__all__ = ["SILENT_SECONDS", "DatabaseCaps", "QueueCaps"]

# A conductor looks once a second at least: one that has not been heard of for so long waits for its database.
SILENT_SECONDS = 3.0


class QueueCaps:
    """One for each worker; all its conductors use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.policies: dict[int, SlotShares] = {}
        self.members: list[DatabaseCaps] = []

    def join(
        self, served: Iterable[ServedQueue], signal: Callable[[], None], running: Callable[[], int]
    ) -> DatabaseCaps | None:
        """The caps for one more conductor, which `signal` wakes, and of whose jobs so many are `running`; None where no
        queue has one.
        """
        caps = {queue.queue_id: queue.cap for queue in served if queue.cap is not None}
        if not caps:
            return None
        with self.lock:
            for queue, cap in caps.items():
                self.policies.setdefault(queue, SlotShares(cap))
            shares = {queue: self.policies[queue].join() for queue in caps}
            member = DatabaseCaps(self, shares, signal, running)
            self.members.append(member)
        return member


class DatabaseCaps:
    """What one conductor has of them. Used by its thread, and by others under the lock."""

    def __init__(
        self, caps: QueueCaps, shares: Mapping[int, Share], signal: Callable[[], None], running: Callable[[], int]
    ) -> None:
        self._caps = caps
        self._running = running
        self._heard_at = 0.0
        self.shares = shares
        self.signal = signal
        # By queue: what it holds, and what it may be about to get.
        self._taken = dict.fromkeys(shares, 0)

    def ask(self, held: Mapping[int, int], now: float) -> dict[int, int]:
        """How many more jobs of each queue may be taken now, where so many are held."""
        left: dict[int, int] = {}
        with self._caps.lock:
            self._heard_at = now
            for queue, share in self.shares.items():
                policy = self._caps.policies[queue]
                share.running = held.get(queue, 0)
                others = sum(each.keeps(queue, now) for each in self._caps.members if each is not self)
                granted = policy.ask(share, now).slots
                left[queue] = max(min(granted, policy.concurrency - others - share.running), 0)
                # What a claim under way may bring: it is called when that is known.
                share.is_hungry |= left[queue] < granted
                self._taken[queue] = share.running + left[queue]
        return left

    def note_claimed(self, held: Mapping[int, int], now: float) -> None:
        """The claim is back: let others have what it did not bring."""
        with self._caps.lock:
            self._heard_at = now
            for queue, share in self.shares.items():
                taken = held.get(queue, 0)
                policy = self._caps.policies[queue]
                share.running = taken
                policy.note_claimed(share, now, is_dry=taken < self._taken[queue])
                self._taken[queue] = taken
                hungry = policy.call_hungry(now)
                for each in self._caps.members:
                    if each is not self and each.shares.get(queue) in hungry:
                        each.signal()

    def keeps(self, queue: int, now: float) -> int:
        """Under the lock: how many jobs of a queue the others have to leave to it."""
        taken = self._taken.get(queue, 0)
        if now - self._heard_at > SILENT_SECONDS:
            taken = min(taken, self._running())
            # By this the cap is shared until it is heard of again.
            if queue in self.shares:
                self.shares[queue].running = taken
        return taken
