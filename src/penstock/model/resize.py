"""How far a resize is: a queue has its new number of partitions at once; what was sent elsewhere before drains."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Resize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """The answer of `app.resize` and `app.move_partition`. Call again to see how far it is: the same changes nothing.

    `epoch` counts the key maps the queue has had. `draining` are partitions with jobs that an earlier map sent there,
    also those that were not moved, for a map is drained as a whole; of a plain queue only those that are not used any
    more; and how many jobs. `is_through`: nothing is waited for any
    more; before that, keys may wait though nothing drains: for a producer whose open transaction began under an earlier
    map, or for a key that is halted.
    """

    queue: str
    partitions: int
    epoch: int
    draining: list[tuple[str, int]]
    is_through: bool
