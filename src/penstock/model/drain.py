"""How far the draining of a shard is: what is left on it, and why."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Drain", "DrainRest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRest:
    """So many of one kind that are left of a queue on a shard, and what they wait for.

    `queue` is empty where it is about the shard as a whole.
    """

    queue: str
    kind: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """The answer of `app.drain_shard`. Call it again to see how far it is, and to go on where no worker runs.

    `state` is "draining", or "drained" when nothing is left: then the database may be taken away, and with it the
    history of the jobs that ended there.
    """

    shard: str
    state: str
    rest: list[DrainRest]
