"""A job in a worker's hands, from the claim until its end has been settled."""

from __future__ import annotations

from collections.abc import Callable

from penstock.storage.claim import Lease
from penstock.task.definition import TaskDefinition
from penstock.task.verdict import Verdict

__all__ = ["HeldJob"]


class HeldJob:
    """Written by one thread at a time: the conductor, then whoever runs it, then the conductor again."""

    __slots__ = (
        "args",
        "attributes",
        "ended",
        "expires_at",
        "id",
        "interrupt",
        "is_abandoned",
        "is_cancelled",
        "is_settled",
        "key",
        "lease",
        "own_lease",
        "position",
        "result",
        "started",
        "task",
        "verdict",
    )

    def __init__(
        self,
        lease: Lease,
        task: TaskDefinition,
        job_id: int,
        args: bytes,
        key: bytes | None,
        attributes: bytes | None,
    ) -> None:
        self.lease = lease
        self.task = task
        self.id = job_id
        self.position = job_id & 1023
        self.args = args
        self.key = key
        self.attributes = attributes
        # Nanoseconds of the performance counter; 0 while it has not started.
        self.started = 0
        self.ended = 0
        # Nanoseconds after which it must not start any more; 0 where its queue has no max_wait.
        self.expires_at = 0
        self.result: bytes | None = None
        # None once ended: it succeeded.
        self.verdict: Verdict | None = None
        self.is_cancelled = False
        # Taken away from its handler (timed out, lease lost): whatever the handler still does counts for nothing.
        self.is_abandoned = False
        # Settled already, in its handler's transaction.
        self.is_settled = False
        # The lease of its own that context.settle gave it.
        self.own_lease: int | None = None
        # Stops a handler that can be stopped: an async one, one in a process.
        self.interrupt: Callable[[], None] | None = None
