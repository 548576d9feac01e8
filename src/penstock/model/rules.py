"""The rules of a queue, by the names that `app.queue` gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["QueueRules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """What holds for a queue now, wherever it was declared: the options of `app.queue`, and whether it is paused.

    None: there is no such rule; `per_key` is a number where the queue has an order, and `on_retry` and `on_dead` are
    told where it has a rule about keys.
    """

    order: Literal["key"] | None = None
    per_key: int | None = None
    limit: int | None = None
    rate: str | None = None
    per_key_rate: str | None = None
    fair_by: Literal["tenant"] | None = None
    weights: Mapping[str, float] | None = None
    on_retry: Literal["hold", "pass"] | None = None
    on_dead: Literal["continue", "halt"] | None = None
    max_length: int | None = None
    max_wait: float | None = None
    paused: bool = False
