"""What an application declares about a queue: its name, its partitions, its rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from penstock.errors import InvalidInput
from penstock.model.checks import MOST_PARTITIONS, checked_count, checked_name
from penstock.model.rules import QueueRules

__all__ = ["USUAL_PARTITIONS", "QueueDefinition", "partition_name", "refuse_unknown_options"]

# Of a queue that was not declared with another number.
USUAL_PARTITIONS = 1


def partition_name(queue: str, number: int) -> str:
    """The name a partition is given: the first has the queue's own. A convention that nothing may parse."""
    return queue if number == 0 else f"{queue}__p{number}"


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A queue as declared."""

    name: str
    partitions: int = USUAL_PARTITIONS
    rules: QueueRules = field(default_factory=QueueRules)

    @classmethod
    def of(cls, name: str, partitions: int = USUAL_PARTITIONS, **options: Any) -> Self:
        """The queue by its options, as `app.queue` takes them; `InvalidInput` for one that cannot be."""
        checked_name("queue", name)
        checked_count("partitions", partitions, most=MOST_PARTITIONS)
        return cls(name, partitions, QueueRules.declared(name, **options))


def refuse_unknown_options(queue: str, given: Mapping[str, object], known: tuple[str, ...] = ()) -> None:
    """Raise `InvalidInput` for the first of these options that is none: a queue's own, or those named."""
    options = known or ("partitions", *(each.name for each in fields(QueueRules) if each.name != "paused"))
    for name in given:
        if name not in options:
            raise InvalidInput(name, f"queue {queue!r} has no such option; the options are {', '.join(options)}")
