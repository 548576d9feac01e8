"""What an application declares about a queue: its name, its partitions, how long it and a wait in it may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import InvalidJob
from penstock.model.limits import MOST_PARTITIONS, checked_count, checked_name, checked_seconds

__all__ = ["QueueDefinition", "partition_name", "refuse_unavailable_options"]

# Options of the contract that this version cannot keep; each leaves this list when it is built.
_NOT_AVAILABLE = frozenset(
    {"order", "per_key", "limit", "rate", "per_key_rate", "fair_by", "weights", "on_retry", "on_dead"}
)


def refuse_unavailable_options(queue: str, options: Mapping[str, object]) -> None:
    """Raise `InvalidJob` for the first of these options: one this version does not have, or one that never existed."""
    for name in options:
        if name in _NOT_AVAILABLE:
            raise InvalidJob(name, f"option {name!r} of queue {queue!r} is not available in this version; leave it out")
        raise InvalidJob(
            name, f"queue {queue!r} has no option {name!r}; the options are partitions, max_length and max_wait"
        )


def partition_name(queue: str, number: int) -> str:
    """The name a partition is given: the first has the queue's own. A convention that nothing may parse."""
    return queue if number == 0 else f"{queue}__p{number}"


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A queue as declared. `max_length` counts jobs per partition, `max_wait` seconds from when a job was ready."""

    name: str
    partitions: int = 1
    max_length: int | None = None
    max_wait: float | None = None

    def __post_init__(self) -> None:
        checked_name("queue", self.name)
        checked_count("partitions", self.partitions, most=MOST_PARTITIONS)
        if self.max_length is not None:
            checked_count("max_length", self.max_length)
        if self.max_wait is not None:
            object.__setattr__(self, "max_wait", checked_seconds("max_wait", self.max_wait))
