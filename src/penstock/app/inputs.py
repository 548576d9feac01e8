"""What users give an app, checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypedDict

from penstock.client.task import Queue
from penstock.errors import InvalidInput
from penstock.model.checks import checked_days, checked_flag, checked_name, shown
from penstock.model.job_filters import FILTERS, JobFilters, JobScope
from penstock.model.queue import refuse_fixed_options
from penstock.model.rules import LIVE_OPTIONS
from penstock.model.wrong_calls import meant_by, unknown_option

__all__ = [
    "Filters",
    "FiltersInQueue",
    "Limits",
    "QueueOptions",
    "check_app_options",
    "check_limits",
    "checked_args",
    "checked_filters",
    "checked_queues",
    "checked_retention",
    "name_of",
    "scope_of",
]

RETENTION_DAYS = {
    "succeeded": 7.0, "failed": 30.0, "cancelled": 7.0, "discarded": 7.0, "expired": 7.0, "audit": 365.0,
}  # fmt: skip


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
    cause: str | None


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


class QueueOptions(Limits, total=False):
    """What `app.set_queue` sets: the options of `app.queue` by those names."""

    partitions: int
    order: Literal["key"] | None
    per_key: int
    fair_by: Literal["tenant"] | None
    on_retry: Literal["hold", "pass"] | None
    on_dead: Literal["continue", "halt"] | None


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


def check_limits(queue: str, given: Mapping[str, object]) -> None:
    """Refuse what `app.limit` does not change, and nothing at all."""
    refuse_fixed_options(queue, given)
    if not given:
        options = f"{', '.join(LIVE_OPTIONS[:-1])} or {LIVE_OPTIONS[-1]}"
        raise InvalidInput("limits", f"there is nothing to change: give {options}; None takes one away")


def checked_queues(given: object) -> object:
    """Queues by name, where some are given as the objects; whatever else it is stays as it is."""
    if isinstance(given, (list, tuple)):
        return [each.name if isinstance(each, Queue) else each for each in given]
    return given


def checked_args(args: object) -> dict[str, Any]:
    """A job's arguments by name."""
    if args is None:
        return {}
    if not isinstance(args, Mapping) or not all(isinstance(each, str) for each in args):
        raise InvalidInput(
            "args", f"a dict of the task's arguments by name is needed, not {shown(args)}; write {{'to': 'ada'}}"
        )
    return dict(args)


def scope_of(queues: object, tenant: object) -> JobScope | None:
    """The jobs of these queues and that tenant; None: all there are."""
    if queues is None and tenant is None:
        return None
    if queues is not None and (isinstance(queues, str) or not isinstance(queues, Collection)):
        raise InvalidInput("queues", f"a list of names is needed, not {shown(queues)}; write queues=['mail']")
    names = None if queues is None else frozenset(checked_name("queues", each) for each in queues)
    return JobScope(names, None if tenant is None else checked_name("tenant", tenant))


def checked_retention(given: Mapping[str, float] | None) -> dict[str, float]:
    """How many days ended jobs are kept, for every final state, and what the audit has."""
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
    if retention["audit"] < 1:
        raise InvalidInput("retention", "audit: what was done today stays; give at least 1 day")
    return retention
