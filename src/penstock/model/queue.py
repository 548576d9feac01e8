"""What an application declares about a queue: its name, its partitions, its rules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Self

from penstock.errors import InvalidInput
from penstock.model.checks import MOST_PARTITIONS, checked_count, checked_name, shown
from penstock.model.rules import LIVE_OPTIONS, QueueRules
from penstock.model.wrong_calls import unknown_option

__all__ = ["USUAL_PARTITIONS", "QueueDefinition", "partition_name", "refuse_fixed_options"]

# Of a queue that was not declared with another number.
USUAL_PARTITIONS = 1
# What is added to the name of a queue that is deleted.
_DELETED = re.compile(r" \(deleted \d+\)")


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
        if _DELETED.search(name):
            raise InvalidInput("queue", f"{shown(name)} is how a deleted queue is named; choose another name")
        checked_count("partitions", partitions, most=MOST_PARTITIONS)
        return cls(name, partitions, QueueRules.declared(name, **options))


def refuse_fixed_options(queue: str, given: Iterable[str]) -> None:
    """Raise `InvalidInput` for the first of these options that `app.limit` does not change, with what does."""
    fixed = ("partitions", *(each.name for each in fields(QueueRules) if each.name not in (*LIVE_OPTIONS, "paused")))
    for name in given:
        if name in LIVE_OPTIONS:
            continue
        if name not in fixed:
            raise unknown_option("app.limit", name, LIVE_OPTIONS)
        if name == "partitions":
            raise InvalidInput(name, f"app.limit does not change it; app.resize({queue!r}, partitions=...) does")
        raise InvalidInput(
            name,
            f"it stays as queue {queue!r} was declared; declare a queue of another name with it, "
            f"or change what app.limit can: {', '.join(LIVE_OPTIONS)}",
        )
