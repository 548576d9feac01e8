"""The work that all questions measure: a task that does nothing, with about 110 bytes of JSON arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock import App

__all__ = ["ARGUMENTS", "QUEUE", "TASK", "calls_of", "declare"]

QUEUE = "bench"
TASK = "handle"

# A few thousand different ones, made beforehand: making them is not what is measured, on either side.
ARGUMENTS: list[dict[str, Any]] = [
    {
        "customer_id": f"customer-{number:06d}",
        "amount": round(number * 1.37, 2),
        "currency": "EUR",
        "reference": f"2026-{number:06d}",
        "is_express": number % 3 == 0,
    }
    for number in range(10_000)
]
ARGUMENT_BYTES = sum(len(msgspec.json.encode(each)) for each in ARGUMENTS) / len(ARGUMENTS)


def calls_of(size: int) -> list[list[dict[str, Any]]]:
    """The arguments in calls of so many, to be used in turn."""
    return [ARGUMENTS[low : low + size] for low in range(0, len(ARGUMENTS) - size + 1, size)]


def declare(
    url: str | list[str],
    queue: str = QUEUE,
    handler: Callable[..., None] | None = None,
    *,
    key: str | None = None,
    **options: Any,
) -> tuple[App, Any]:
    """An app on one database or on several shards, and its task, whose key is the argument named, in a queue with these
    options."""
    app = App(url) if isinstance(url, str) else App(shards=url)
    return app, app.queue(queue, **options).task(name=TASK, key=key)(_do_nothing if handler is None else handler)


def _do_nothing(customer_id: str, amount: float, currency: str, reference: str, is_express: bool) -> None:
    pass
