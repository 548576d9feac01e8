"""A worker process for the faults, and its tasks; `tests.fault.spawner` starts it with its orders.

Every run of a handler is noted before and after; the hooks note what the worker was told about its settles. A worker
may be ordered to die at a named point of the engine: the function there is wrapped, in this process only.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.judge.history import EventType, Recorder

import penstock
from penstock import App
from penstock.cli.process_exit import STUCK_STATUS, leave_at_once

__all__ = ["POINTS", "Orders", "build", "work"]

# Where a worker can be ordered to die: (module, function, before or after it).
POINTS = {
    "before it registers": ("penstock.storage.work.workers", "register", "before"),
    "before a turn": ("penstock.engine.conversation", "exchange", "before"),
    "after a turn": ("penstock.engine.conversation", "exchange", "after"),
    "before it reads what it claimed": ("penstock.engine.leased_jobs", "read_jobs", "before"),
    "after it read what it claimed": ("penstock.engine.leased_jobs", "read_jobs", "after"),
    "before a handler": ("penstock.worker.threads", "run_quickly", "before"),
    "after a handler": ("penstock.worker.threads", "run_quickly", "after"),
    "before it renews": ("penstock.storage.work.workers", "renew", "before"),
    "before a rescue": ("penstock.storage.upkeep.sweep", "rescue", "before"),
    "after a rescue": ("penstock.storage.upkeep.sweep", "rescue", "after"),
    "before it unblocks": ("penstock.worker.reporting", "unblock_next", "before"),
    "after it unblocked": ("penstock.worker.reporting", "unblock_next", "after"),
}


class Orders(msgspec.Struct):
    """What a worker process is told."""

    url: str
    history: str
    # The URLs of several shards, in the place of the one.
    shards: list[str] = []
    lease: float = 1.5
    concurrency: int = 4
    max_attempts: int = 25
    request_timeout: float = 30.0
    work_seconds: float = 0.0
    # A name of POINTS, and the how manieth passing of it is the last.
    die_at: str = ""
    die_after: int = 1
    until_idle: bool = False
    partitions: int = 1
    # The partitions of an ordered queue, and the limit of another; 0: there is none. The total_limit of two more, one
    # of them with an order, which have as many partitions as `partitions` says.
    ordered: int = 0
    limit: int = 0
    total: int = 0
    # How many jobs of the ordered and of the limited queue a handler is given together; 0: each alone.
    batch: int = 0
    # How many jobs of a key of the ordered queue are taken in one go.
    run: int = 1
    # The total_rate of two more.
    total_rate: str = ""


class Broken(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class Hostile(Exception):
    """An error whose text ends whoever asks for it."""

    def __str__(self) -> str:
        raise SystemExit("no text for you")


def _fall() -> None:
    return _fall()


def _hang() -> None:
    threading.Event().wait(600)


def _raise(error: BaseException) -> Callable[[], Any]:
    def act() -> None:
        raise error

    return act


# What a handler may do to its worker.
MISDEEDS: dict[str, Callable[[], Any]] = {
    "raise": _raise(ValueError("on purpose")),
    "exit": lambda: sys.exit(3),
    "exit at once": lambda: os._exit(3),
    "segfault": lambda: ctypes.string_at(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": _hang,
    "unserialisable": lambda: object(),
    "broken error": _raise(Broken()),
    "hostile error": _raise(Hostile()),
    "base exception": _raise(BaseException("not an Exception")),
    "interrupt": _raise(KeyboardInterrupt()),
    "recurse": _fall,
    "stop iteration": _raise(StopIteration(1)),
    "generator exit": _raise(GeneratorExit()),
}


def build(orders: Orders, recorder: Recorder | None = None) -> App:
    """The app that workers and producers of the faults share."""
    place: dict[str, Any] = {"shards": orders.shards} if orders.shards else {"url": orders.url}
    app = App(**place, lease=orders.lease, pool_size=4, request_timeout=orders.request_timeout)
    queue = app.queue("work", partitions=orders.partitions)

    def note(how: EventType, label: str, context: penstock.Context, batch: int = 0) -> None:
        if recorder is not None:
            job, lease, attempt = context.job_id, context.lease, context.attempt
            recorder.note("run", how, label=label, job=job, lease=lease, attempt=attempt, call=batch)

    begun, returned = functools.partial(note, "invoke"), functools.partial(note, "ok")

    @queue.task(max_attempts=orders.max_attempts, backoff=0)
    def plain(context: penstock.Context, label: str) -> str:
        begun(label, context)
        time.sleep(orders.work_seconds)
        returned(label, context)
        return label

    @queue.task(max_attempts=orders.max_attempts, backoff=0)
    async def lane(context: penstock.Context, label: str) -> str:
        begun(label, context)
        await asyncio.sleep(orders.work_seconds)
        returned(label, context)
        return label

    @queue.task(backoff=0)
    def stall(context: penstock.Context, label: str) -> str:
        """Stop the whole process in the first attempt, and go on as if nothing had happened."""
        begun(label, context)
        if context.attempt == 1:
            _stop_here()
        returned(label, context)
        return label

    @queue.task(backoff=0)
    async def stall_lane(context: penstock.Context, label: str) -> str:
        begun(label, context)
        if context.attempt == 1:
            _stop_here()
        returned(label, context)
        return label

    @queue.task(backoff=0)
    def die_once(context: penstock.Context, label: str, when: str) -> str:
        """Kill the process in the first attempt: before the handler's work is done, after it, or a little later."""
        begun(label, context)
        if context.attempt == 1 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        returned(label, context)
        if context.attempt == 1 and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        if context.attempt == 1 and when == "later":
            threading.Timer(0.0005, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return label

    @queue.task(max_attempts=1)
    def fail_first(context: penstock.Context, label: str) -> str:
        """Become a dead letter; a person who retries it brings it to a good end."""
        begun(label, context)
        if context.attempt == 1:
            raise ValueError("on purpose")
        returned(label, context)
        return label

    @queue.task(max_attempts=orders.max_attempts, backoff=0, timeout=1.0)
    def bad(context: penstock.Context, label: str, misdeed: str) -> Any:
        begun(label, context)
        return MISDEEDS[misdeed]()

    @queue.task(max_attempts=orders.max_attempts, backoff=0, timeout=1.0)
    async def bad_lane(context: penstock.Context, label: str, misdeed: str) -> Any:
        begun(label, context)
        if misdeed == "hang":
            await asyncio.sleep(600)
        return MISDEEDS[misdeed]()

    in_process = queue.task(
        max_attempts=orders.max_attempts, backoff=0, timeout=1.0, executor="process", name="bad_child"
    )
    in_process(bad_child)

    def step(context: penstock.Context, label: str, customer: str, fails: int) -> str:
        """Fail so many times first."""
        begun(label, context)
        time.sleep(orders.work_seconds)
        if context.attempt <= fails and recorder is not None:
            note("fail", label, context)
            raise ValueError("on purpose")
        returned(label, context)
        return label

    def steps(context: penstock.BatchContext, items: list[dict[str, Any]]) -> list[Any]:
        """Several at once. The first of a batch that is to fail makes all of it fail, any other only itself."""
        batch = context.job_id
        for item, job in zip(items, context.jobs, strict=True):
            begun(item["label"], job, batch)
        time.sleep(orders.work_seconds)
        fails = [job.attempt <= item["fails"] for item, job in zip(items, context.jobs, strict=True)]
        fails = [True] * len(items) if fails[0] else fails
        for item, job, is_failed in zip(items, context.jobs, fails, strict=True):
            note("fail" if is_failed else "ok", item["label"], job, batch)
        if fails[0]:
            raise ValueError("on purpose")
        return [ValueError("on purpose") if is_failed else batch for is_failed in fails]

    def declare(queue: penstock.Queue, key: str | None = None) -> None:
        if orders.batch:
            queue.task(name="step", key=key, backoff=0.05, batch=orders.batch, batch_wait=0.01)(steps)
        else:
            queue.task(key=key, backoff=0.05)(step)

    if orders.ordered:
        declare(app.queue("ordered", partitions=orders.ordered, order="key", run=orders.run), "customer")
    if orders.limit:
        declare(app.queue("limited", limit=orders.limit))
    if orders.total:
        whole: dict[str, Any] = {"partitions": orders.partitions, "total_limit": orders.total}
        app.queue("total", **whole).task(key="customer", backoff=0.05)(step)
        app.queue("total-ordered", order="key", **whole).task(key="customer", backoff=0.05)(step)
    if orders.total_rate:
        paced: dict[str, Any] = {"partitions": orders.partitions, "total_rate": orders.total_rate}
        app.queue("paced", **paced).task(key="customer", backoff=0.05)(step)
        app.queue("paced-ordered", order="key", **paced).task(key="customer", backoff=0.05)(step)
    return app


def _stop_here() -> None:
    """Stop the process. Another of its threads may be told first, and this one go on for a moment: not beyond here."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.1)


def bad_child(label: str, misdeed: str) -> Any:
    """The same in a process of its own."""
    return MISDEEDS[misdeed]()


class _Refusals(logging.Handler):
    """Notes what the worker was told about settles that came too late."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("LeaseLost"):
            self._recorder.note("settle", "fail", label=record.getMessage())


def _die_at(point: str, passings: int) -> None:
    module_name, name, when = POINTS[point]
    module = __import__(module_name, fromlist=[name])
    original = getattr(module, name)
    left = [passings]

    def passing() -> None:
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(*args: Any, **named: Any) -> Any:
        if when == "before":
            passing()
        result = original(*args, **named)
        if when == "after":
            passing()
        return result

    setattr(module, name, wrapped)


def work(orders: Orders) -> None:
    """Work as ordered, in this process."""
    recorder = Recorder(Path(orders.history))
    logging.getLogger("penstock").addHandler(_Refusals(recorder))
    if orders.die_at:
        _die_at(orders.die_at, orders.die_after)
    app = build(orders, recorder)
    app.on("succeeded", lambda event: recorder.note("settle", "ok", job=event.job_id or 0))
    try:
        app.work(concurrency=orders.concurrency, until_idle=orders.until_idle)
    except penstock.WorkerStuck:
        # As the command line does.
        leave_at_once(STUCK_STATUS)
