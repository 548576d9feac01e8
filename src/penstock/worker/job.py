"""A job in a worker's hands, from the claim until its end has been settled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

from penstock.storage.claim import Lease, LeasedJob
from penstock.task.definition import TaskDefinition
from penstock.task.verdict import Verdict

__all__ = ["HeldJob"]


class HeldJob:
    """Written by one thread at a time: the conductor, then whoever runs it, then the conductor again.

    Most jobs end well and fast: what they share are attributes of the class, so that making one costs little.
    """

    # Nanoseconds of the performance counter; 0 while it has not started.
    started = 0
    ended = 0
    # Nanoseconds after which it must not start any more; 0 where its queue has no max_wait.
    expires_at = 0
    result: bytes | None = None
    # None once ended: it succeeded.
    verdict: Verdict | None = None
    is_cancelled = False
    # Taken away from its handler (timed out, lease lost): whatever the handler still does counts for nothing.
    is_abandoned = False
    # Settled already, in its handler's transaction.
    is_settled = False
    # Whether context.settle asked for a lease of its own, which it may have from then on; whether it waits for the
    # answer; and the lease, once it is known.
    is_split = False
    is_splitting = False
    own_lease: int | None = None
    # Held while a job is taken away or asks for that lease: it does not do both. One for all, as both are rare.
    taking: ClassVar[threading.Lock] = threading.Lock()
    # Ran past its timeout with a lease of its own: its end is written apart from its handler.
    is_late = False
    # Stops a handler that can be stopped: an async one, one in a process.
    interrupt: Callable[[], None] | None = None

    def __init__(self, lease: Lease, task: TaskDefinition, stored: LeasedJob) -> None:
        self.lease = lease
        self.task = task
        self.id: int = stored[0]
        self.args: str = stored[1]
        self._stored = stored

    @property
    def key(self) -> bytes | None:
        key: bytes | None = self._stored[2]
        return key

    @property
    def attributes(self) -> str | None:
        attributes: str | None = self._stored[3]
        return attributes

    @property
    def position(self) -> int:
        """Where it stands in its range."""
        return self.id & 1023
