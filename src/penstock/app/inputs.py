"""What users give an app, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from penstock.client.task import Queue
from penstock.errors import InvalidInput
from penstock.model.checks import checked_days, checked_name, shown

__all__ = ["Limits", "check_app_options", "checked_filters", "checked_retention", "name_of"]

FILTERS = ("queue", "state", "task", "key", "load", "tag")
RETENTION_DAYS = {"succeeded": 7.0, "failed": 30.0, "cancelled": 7.0, "discarded": 7.0, "expired": 7.0}


class Limits(TypedDict, total=False):
    """What `app.limit` changes: the options of `app.queue` by those names."""

    limit: int | None
    rate: str | None
    per_key_rate: str | None
    weights: Mapping[str, float] | None
    max_length: int | None
    max_wait: float | None


def check_app_options(
    unavailable: Mapping[str, object], imports: object, accept_data_loss: object, pooled: object
) -> None:
    """Refuse options that an app does not have, and those of the wrong kind."""
    for name in unavailable:
        raise InvalidInput(name, f"App has no option {name!r}")
    if isinstance(imports, str) or not isinstance(imports, Sequence):
        raise InvalidInput("imports", "a list of module names is needed; write imports=['tasks']")
    for name in imports:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise InvalidInput("imports", f"{shown(name)} is no name of a module; write imports=['tasks']")
    if not isinstance(accept_data_loss, bool):
        raise InvalidInput("accept_data_loss", f"must be True or False, not {shown(accept_data_loss)}")
    if pooled is not None and not isinstance(pooled, bool):
        raise InvalidInput("pooled", "must be True, False or None")


def name_of(queue: str | Queue) -> str:
    """The name of a queue, given by name or as the object."""
    return queue.name if isinstance(queue, Queue) else checked_name("queue", queue)


def checked_filters(filters: dict[str, Any]) -> dict[str, Any]:
    """By what jobs are chosen, as they are stored."""
    for name in filters:
        if name not in FILTERS:
            raise InvalidInput(name, f"jobs cannot be chosen by {name!r}; the filters are {', '.join(FILTERS)}")
    if isinstance(filters.get("queue"), Queue):
        filters["queue"] = filters["queue"].name
    return filters


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
