"""What an application declares about a queue: its partitions, its order, its limits, how long it may be.

Three kinds follow from it. A plain queue has no rule: any worker takes any job. A gated one has a limit or a rate: each
claim counts first. An owned one has a rule about keys or tenants: each of its partitions is decided by one worker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from penstock.errors import InvalidInput
from penstock.model.limits import (
    MOST_PARTITIONS,
    MOST_RUNNING,
    MOST_WEIGHTS,
    checked_count,
    checked_name,
    checked_seconds,
    shown,
)
from penstock.model.rate import checked_rate

__all__ = ["LIVE_OPTIONS", "QueueDefinition", "partition_name", "refuse_unknown_options"]

# What `app.limit` changes; the rest of a queue's options stays as it was declared, `partitions` aside.
LIVE_OPTIONS = ("limit", "rate", "per_key_rate", "weights", "max_length", "max_wait")


def partition_name(queue: str, number: int) -> str:
    """The name a partition is given: the first has the queue's own. A convention that nothing may parse."""
    return queue if number == 0 else f"{queue}__p{number}"


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A queue as declared. `limit`, `rate`, `fair_by` and `max_length` (jobs) hold for each partition.

    `max_wait` counts seconds from when a job was ready.
    """

    name: str
    partitions: int = 1
    max_length: int | None = None
    max_wait: float | None = None
    order: Literal["key"] | None = None
    per_key: int = 1
    limit: int | None = None
    rate: str | None = None
    per_key_rate: str | None = None
    fair_by: Literal["tenant"] | None = None
    weights: Mapping[str, float] | None = None
    on_retry: Literal["hold", "pass"] = "hold"
    on_dead: Literal["continue", "halt"] = "continue"

    def __post_init__(self) -> None:
        checked_name("queue", self.name)
        checked_count("partitions", self.partitions, most=MOST_PARTITIONS)
        if self.max_length is not None:
            checked_count("max_length", self.max_length)
        if self.max_wait is not None:
            object.__setattr__(self, "max_wait", checked_seconds("max_wait", self.max_wait))
        _checked_choice("order", self.order, (None, "key"))
        checked_count("per_key", self.per_key, most=MOST_RUNNING)
        if self.limit is not None:
            checked_count("limit", self.limit, most=MOST_RUNNING)
        for field in ("rate", "per_key_rate"):
            if getattr(self, field) is not None:
                checked_rate(field, getattr(self, field))
        _checked_choice("fair_by", self.fair_by, (None, "tenant"))
        if self.weights is not None:
            object.__setattr__(self, "weights", _checked_weights(self.weights))
        _checked_choice("on_retry", self.on_retry, ("hold", "pass"))
        _checked_choice("on_dead", self.on_dead, ("continue", "halt"))
        self._refuse_what_does_not_fit()

    @property
    def running_per_key(self) -> int | None:
        """How many jobs of a key may run at once, where its order is kept."""
        return self.per_key if self.order is not None or self.per_key != 1 else None

    @property
    def rate_a_second(self) -> float | None:
        """The rate in starts a second."""
        return None if self.rate is None else checked_rate("rate", self.rate)

    @property
    def key_rate_a_second(self) -> float | None:
        """The rate of each key in starts a second."""
        return None if self.per_key_rate is None else checked_rate("per_key_rate", self.per_key_rate)

    @property
    def has_key_rule(self) -> bool:
        """Whether keys mean anything to this queue beyond where a job goes."""
        return self.running_per_key is not None or self.per_key_rate is not None

    @property
    def is_owned(self) -> bool:
        """Whether each of its partitions is decided by one worker."""
        return self.has_key_rule or self.fair_by is not None

    @property
    def holds_on_retry(self) -> bool:
        """Whether a key waits for the retry of its job."""
        return self.has_key_rule and self.on_retry == "hold"

    @property
    def halts_on_dead(self) -> bool:
        """Whether a key whose job ran out of attempts waits for a person."""
        return self.on_dead == "halt"

    def _refuse_what_does_not_fit(self) -> None:
        if self.weights is not None and self.fair_by is None:
            raise InvalidInput(
                "weights", f"queue {self.name!r} shares by nothing: give fair_by='tenant', or no weights"
            )
        for field, value, usual in (("on_retry", self.on_retry, "hold"), ("on_dead", self.on_dead, "continue")):
            if value != usual and not self.has_key_rule:
                raise InvalidInput(
                    field,
                    f"{value!r} is about keys, and queue {self.name!r} has no rule about them; "
                    f"give order='key', per_key or per_key_rate, or leave {field} out",
                )


def refuse_unknown_options(queue: str, given: Mapping[str, object], known: tuple[str, ...] = ()) -> None:
    """Raise `InvalidInput` for the first of these options that is none: a queue's own, or those named."""
    options = known or tuple(field.name for field in fields(QueueDefinition) if field.name != "name")
    for name in given:
        if name not in options:
            raise InvalidInput(name, f"queue {queue!r} has no such option; the options are {', '.join(options)}")


def _checked_choice(field: str, value: object, choices: tuple[str | None, ...]) -> None:
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise InvalidInput(field, f"{shown(value)} is none of them; give {' or '.join(map(repr, choices))}")


def _checked_weights(value: object) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise InvalidInput("weights", f"a dict of tenants and numbers is needed, not {type(value).__name__}")
    if len(value) > MOST_WEIGHTS:
        raise InvalidInput("weights", f"{len(value)} weights are too many; give at most {MOST_WEIGHTS}: others weigh 1")
    weights: dict[str, float] = {}
    for tenant, weight in value.items():
        name = checked_name("weights", tenant)
        is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not is_number or not 0.001 <= weight <= 1_000_000 or not math.isfinite(weight):
            raise InvalidInput(
                "weights", f"{shown(weight)} is no weight of {name!r}; give a number from 0.001 to 1000000"
            )
        weights[name] = float(weight)
    return weights
