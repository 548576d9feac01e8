"""How far a resize is: a queue has its new number of partitions at once; what was sent elsewhere before drains."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Resize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """The answer of `app.resize`. Call it again to see how far it is: the same number of partitions changes nothing.

    `epoch` counts the key maps the queue has had. `draining` are partitions with jobs that an earlier
    map sent there, or that a plain queue does not use any more, and how many. `is_through`: nothing is waited for any
    more; before that, keys may wait though nothing drains: for a producer whose open transaction began under an earlier
    map, or for a key that is halted.
    """

    queue: str
    partitions: int
    epoch: int
    draining: list[tuple[str, int]]
    is_through: bool
