"""By what jobs are chosen, to look at them or to change them."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["ANY_JOB", "FILTERS", "JobFilters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilters:
    """One value, from the call down to where jobs are selected; None is any.

    A partition is given by its name, or with its queue by number.
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


ANY_JOB = JobFilters()
FILTERS = tuple(each.name for each in fields(JobFilters))
