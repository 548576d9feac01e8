"""Handlers for processes: they must be found at the top of a module."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock import App, Discard
from penstock.client.task import Task


def square(n: int) -> int:
    return n * n


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


def declare(app: App) -> dict[str, Task[..., Any]]:
    """The tasks of these handlers, each tried once."""
    queue = app.queue("processes")
    return {
        handler.__name__: queue.task(
            name=handler.__name__, max_attempts=1, executor="process", timeout=2.0 if handler is hang else None
        )(handler)
        for handler in (square, die, die_with_child, hang, wait, report, fail, give_up)
    }
