"""Handlers for processes: they must be found at the top of a module."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import App, Discard
from penstock.client.task import Task


def square(n: int) -> int:
    return n * n


def square_many(items: list[dict[str, int]]) -> list[Any]:
    return [ValueError(item["n"]) if item["n"] == 3 else item["n"] ** 2 for item in items]


def die_of_three(items: list[dict[str, Any]]) -> None:
    if any(item["n"] == 3 for item in items):
        os.kill(os.getpid(), signal.SIGKILL)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_with_child(path: str) -> None:
    if (child := os.fork()) == 0:
        time.sleep(600)
    Path(path).write_text(str(child))
    os._exit(3)


def hang() -> None:
    time.sleep(600)


def wait(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


def report(context: Any) -> None:
    for value in (0.5, 1e300, 10**400, float("nan"), "much"):
        with suppress(Exception):
            context.progress(value, "half\x00 done\udc80")


CARDS: dict[int, str] = {}


class Refused(Exception):
    """It cannot be pickled as it is."""

    def __init__(self, order: int, card: str) -> None:
        super().__init__(f"order {order}")


def fail(order: int) -> None:
    try:
        CARDS[order]
    except KeyError as error:
        refused = Refused(order, "4242")
        refused.add_note("asked in a process")
        raise refused from error


def give_up() -> None:
    raise Discard("the shop was closed")


NOTED: ContextVar[list[Any]] = ContextVar("NOTED")


@contextmanager
def note(context: Any, args: Any) -> Iterator[None]:
    """Middleware."""
    token = NOTED.set(["note", context.task, args, os.getpid()])
    yield
    NOTED.reset(token)


@asynccontextmanager
async def anote(context: Any, args: Any) -> AsyncIterator[None]:
    """Async middleware."""
    token = NOTED.set([*NOTED.get(), "anote"])
    yield
    NOTED.reset(token)


@contextmanager
def refuse(context: Any, args: Any) -> Iterator[None]:
    """Middleware that puts another error in the place of the handler's."""
    try:
        yield
    except KeyError as error:
        raise Discard(f"no such order: {error}") from error


def noted(n: int) -> list[Any]:
    if n > 1:
        raise KeyError(n)
    return [*NOTED.get(), os.getpid()]


def stop_when_told(context: Any, path: str) -> str:
    Path(path).write_text(str(os.getpid()))
    while not context.is_stopping:
        time.sleep(0.01)
    return "stopped"


def leave_polling(context: Any, n: int) -> int:
    """Leave a thread behind that goes on to ask whether the worker stops."""

    def poll() -> None:
        while not context.is_stopping:
            pass

    if n == 0:
        threading.Thread(target=poll, daemon=True).start()
    return n


@dataclass
class Order:
    n: int


def raise_for_orders(items: list[Order]) -> None:
    raise RuntimeError(f"all {len(items)} of them")


def break_contract_for_orders(items: list[Order]) -> str:
    return "done"


def declare(app: App) -> dict[str, Task[..., Any]]:
    """The tasks of these handlers, each tried once."""
    queue = app.queue("processes")
    return {
        handler.__name__: queue.task(
            name=handler.__name__, max_attempts=1, executor="process", timeout=2.0 if handler is hang else None
        )(handler)
        for handler in (square, die, die_with_child, hang, wait, report, fail, give_up, noted, stop_when_told)
    }


def stop_many_when_told(context: Any, items: list[dict[str, str]]) -> list[Any]:
    """A batch that runs until its worker stops; what was noted around it."""
    Path(items[0]["path"]).touch()
    while not context.is_stopping:
        time.sleep(0.01)
    return [NOTED.get()[:3]] * len(items)
