"""What a search over everything found: a job, or something that has a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["HIT_KINDS", "HitKind", "SearchHit"]

HitKind = Literal["job", "key", "idempotency-key", "queue", "task", "cron", "load", "worker", "tag"]
HIT_KINDS: tuple[HitKind, ...] = get_args(HitKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """One of them. `name` is its own; of a job that of its task. `queue` is where it belongs; a worker has none.

    `id` is that of the job or the worker; of a key, an idempotency key or a tag that of a job which has it.
    """

    kind: HitKind
    name: str
    queue: str | None = None
    id: int | None = None
