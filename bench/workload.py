"""The work that all questions measure: a task that does nothing, with about 110 bytes of JSON arguments."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    middleware: int = 0,
    batch: int | None = None,
    call_seconds: float = 0.0,
    **options: Any,
) -> tuple[App, Any]:
    """An app on one database or on several shards, and its task, whose key is the argument named, in a queue with these
    options; so many context managers that do nothing are around each run. With `batch` its handler gets so many jobs at
    once. A call of it takes `call_seconds`.
    """
    app = App(url) if isinstance(url, str) else App(shards=url)
    for _ in range(middleware):
        app.middleware(_wrap())
    declared = app.queue(queue, **options)
    if batch is not None:
        return app, declared.task(name=TASK, key=key, batch=batch)(_taking(call_seconds, _do_nothing_together))
    return app, declared.task(name=TASK, key=key)(_taking(call_seconds, handler or _do_nothing))


def _do_nothing(customer_id: str, amount: float, currency: str, reference: str, is_express: bool) -> None:
    pass


def _do_nothing_together(items: list[dict[str, Any]]) -> None:
    pass


def _taking(seconds: float, handler: Callable[..., None]) -> Callable[..., None]:
    """The handler, after it has waited for so long."""
    if not seconds:
        return handler

    @functools.wraps(handler)
    def wait_first(**named: Any) -> None:
        time.sleep(seconds)
        handler(**named)

    return wait_first


def _wrap() -> Any:
    """Another middleware each time: the same again would replace it."""
    mark = object()

    @contextmanager
    def wrap(context: Any, args: Any) -> Iterator[object]:
        yield mark

    return wrap
