"""By what jobs are chosen, to look at them or to change them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, fields

__all__ = ["ANY_JOB", "FILTERS", "JobFilters", "JobScope"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilters:
    """One value, from the call down to where jobs are selected; None is any.

    A partition is given by its name, or with its queue by number. Only dead letters have a `cause`.
    """

    queue: str | None = None
    partition: int | str | None = None
    state: str | None = None
    task: str | None = None
    key: str | bytes | int | None = None
    load: str | None = None
    tag: str | None = None
    tenant: str | None = None
    created_by: str | None = None
    cause: str | None = None


ANY_JOB = JobFilters()
FILTERS = tuple(each.name for each in fields(JobFilters))


@dataclass(frozen=True, slots=True)
class JobScope:
    """Which jobs somebody may know of; None is any. One outside of it is to them as one that does not exist."""

    queues: Set[str] | None = None
    tenant: str | None = None

    def has(self, queue: str, tenant: str | None) -> bool:
        """Whether a job of that queue and tenant is one of these."""
        return (self.queues is None or queue in self.queues) and self.tenant in (None, tenant)
