"""What users give an app, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from penstock.client.task import Queue
from penstock.errors import InvalidInput
from penstock.model.checks import checked_days, checked_flag, checked_name, shown
from penstock.model.job_filters import FILTERS, JobFilters
from penstock.model.wrong_calls import meant_by, unknown_option

__all__ = [
    "Filters",
    "FiltersInQueue",
    "Limits",
    "check_app_options",
    "checked_filters",
    "checked_retention",
    "name_of",
]

RETENTION_DAYS = {"succeeded": 7.0, "failed": 30.0, "cancelled": 7.0, "discarded": 7.0, "expired": 7.0}


class FiltersInQueue(TypedDict, total=False):
    """By what jobs of a queue are chosen, as signatures have it: see `JobFilters`. None is any."""

    partition: int | str | None
    state: str | None
    task: str | None
    key: str | bytes | int | None
    load: str | None
    tag: str | None
    tenant: str | None
    created_by: str | None


class Filters(FiltersInQueue, total=False):
    """The same of any queue."""

    queue: str | Queue | None


class Limits(TypedDict, total=False):
    """What `app.limit` changes: the options of `app.queue` by those names."""

    run: int | None
    limit: int | None
    total_limit: int | None
    rate: str | None
    total_rate: str | None
    per_key_rate: str | None
    weights: Mapping[str, float] | None
    max_length: int | None
    max_wait: float | None


def check_app_options(imports: object, accept_data_loss: object, pooled: object, tracing: object) -> None:
    """Refuse options of the wrong kind."""
    if isinstance(imports, str) or not isinstance(imports, Sequence):
        raise InvalidInput("imports", "a list of module names is needed; write imports=['tasks']")
    for name in imports:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise InvalidInput("imports", f"{shown(name)} is no name of a module; write imports=['tasks']")
    checked_flag("accept_data_loss", accept_data_loss)
    checked_flag("tracing", tracing)
    if pooled is not None and not isinstance(pooled, bool):
        raise InvalidInput("pooled", "must be True, False or None")


def name_of(queue: str | Queue) -> str:
    """The name of a queue, given by name or as the object."""
    return queue.name if isinstance(queue, Queue) else checked_name("queue", queue)


def checked_filters(given: Mapping[str, Any], call: str | None = None, *others: str) -> JobFilters:
    """By what jobs are chosen, of what was given by name to a call; `others` are its other options."""
    for name in given:
        if name not in FILTERS and call is not None:
            raise unknown_option(call, name, [*FILTERS, *others])
        if name not in FILTERS:
            meant = meant_by(name, FILTERS)
            raise InvalidInput(name, f"jobs cannot be chosen by it{meant}; the filters are {', '.join(FILTERS)}")
    queue = given.get("queue")
    return JobFilters(**{**given, "queue": queue.name if isinstance(queue, Queue) else queue})


def checked_retention(given: Mapping[str, float] | None) -> dict[str, float]:
    """How many days ended jobs are kept, for every final state."""
    retention = dict(RETENTION_DAYS)
    if given is not None and not isinstance(given, Mapping):
        raise InvalidInput(
            "retention",
            f"a dict of days by final state is needed, not {type(given).__name__}; write retention={{'succeeded': 7}}",
        )
    for outcome, days in (given or {}).items():
        if outcome not in RETENTION_DAYS:
            raise InvalidInput("retention", f"{shown(outcome)} is no final state; give {', '.join(RETENTION_DAYS)}")
        retention[outcome] = checked_days("retention", days, outcome)
    return retention
