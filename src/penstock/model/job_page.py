"""A page of jobs, and where to go on looking for more."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from penstock.model.job import Job
from penstock.model.short_repr import ShortRepr

__all__ = ["JobPage"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobPage(ShortRepr):
    """The answer of `app.job_page`: jobs, newest first, as far as could be looked in about a second.

    `next` is what to give as `before` to go on; None: there is nothing more. A page may be short, or empty, and there
    is more all the same: of a filter that matches little. `searched_to` says when the jobs were enqueued that it has
    come to; None: all have been looked at. `unavailable` are the shards that did not answer.
    """

    jobs: list[Job]
    next: int | None
    searched_to: datetime | None
    unavailable: list[str] = field(default_factory=list)
