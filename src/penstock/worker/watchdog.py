"""The watchdog: finds handlers that do not come back, takes their jobs away, and says when the worker cannot go on.

A handler past its timeout cannot be ended in a thread. Its job is taken away, and its thread is left behind; so is the
runner of an async handler that goes on after it was cancelled. Another one replaces each at once. When more are left
behind than the worker has slots, it is stuck: it ends, so that whoever supervises processes starts it anew.

A handler that does not await blocks the event loop, and with it all the others there. Their jobs are taken away at
their timeout, nothing more is claimed for the loop, and what blocks it is told. If it stays blocked for longer than
the worker's grace, the worker is stuck too.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import traceback
from collections.abc import Iterable, Iterator

from penstock.clock import ticks
from penstock.errors import WorkerStuck
from penstock.log_records import log_about
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.event_loop import EventLoop
from penstock.worker.slot_pool import Slot, SlotPool

__all__ = ["LOOK_SECONDS", "Watchdog"]

log = logging.getLogger("penstock")

LOOK_SECONDS = 0.25
# A loop that has not answered for so long is blocked.
BLOCKED_SECONDS = 1.0
# How long an async handler may take to clean up after it was interrupted at its timeout.
CLEANING_SECONDS = 5.0
# A process is killed at its timeout by the thread that drives it; by then it may have taken so long to start, too.
PROCESS_SECONDS = 90.0
FRAMES = 8


class Watchdog:
    """Used by one thread, which looks every few moments."""

    def __init__(self, slot_pool: SlotPool, event_loop: EventLoop, grace_seconds: float) -> None:
        self._slot_pool = slot_pool
        self._event_loop = event_loop
        self._grace_seconds = grace_seconds
        self._looked_at = ticks()
        self._asked = 0
        self._answered = 0
        self._asked_loop: asyncio.AbstractEventLoop | None = None
        self._silent_seconds = 0.0

    @property
    def patience(self) -> float:
        """Seconds until the next look."""
        now = ticks()
        patience = LOOK_SECONDS
        for slot in list(self._slot_pool.slots):
            due = None if slot.current is None else self._due(slot.current)
            if due is not None:
                patience = min(patience, max((due - now) / 1e9, 0.001))
        return patience

    def look(self) -> WorkerStuck | None:
        """Take away what is overdue; why the worker must end, if it must."""
        stuck = self._look_at_loop()
        now = ticks()
        for slot in list(self._slot_pool.slots):
            job = slot.current
            if job is not None and (due := self._due(job)) is not None and due <= now:
                self._take_away(slot, job)
        return stuck or self._look_at_left_behind()

    def _due(self, job: ClaimedJob) -> int | None:
        """The tick at which a job that runs is to be taken away."""
        task = job.task
        if task.timeout is None or not job.started or job.ended != job.started:
            return None
        seconds = task.timeout
        if task.runs_in_process:
            seconds += PROCESS_SECONDS
        elif task.is_async and not self._slot_pool.is_loop_blocked:
            seconds += CLEANING_SECONDS
        return job.started + int(seconds * 1e9)

    def _take_away(self, slot: Slot, job: ClaimedJob) -> None:
        task = job.task
        is_thread = not task.is_async
        where = f"it was at:\n{_stack_of(slot.thread_id)}" if is_thread else ""
        error = TimeoutError(f"the handler ran longer than its timeout of {task.timeout:g} s")
        if not self._slot_pool.take_away(slot, job, error, where):
            return
        if task.is_async and self._slot_pool.is_loop_blocked:
            said = "job %d (%s/%s) timed out on the blocked event loop"
            log_about(job.log_fields, logging.WARNING, said, job.id, task.queue, task.name)
            return
        log_about(
            job.log_fields,
            logging.WARNING,
            "job %d (%s/%s) ran past its timeout of %g s, and its handler goes on: it is left behind, the number of "
            "such is %d (the worker ends when it is more than %d), and another %s takes its slot%s",
            *(job.id, task.queue, task.name, task.timeout),
            *(len(self._slot_pool.left_behind), self._slot_pool.concurrency),
            "thread" if is_thread else "coroutine",
            where and f"; {where}",
        )

    def _look_at_left_behind(self) -> WorkerStuck | None:
        # Handlers on a blocked loop do not count: how long the loop is blocked decides about those.
        left = [
            slot
            for slot in list(self._slot_pool.left_behind)
            if not (self._slot_pool.is_loop_blocked and slot.thread_id == self._event_loop.thread_id)
        ]
        if len(left) <= self._slot_pool.concurrency:
            return None
        tasks = sorted({f"{job.task.queue}/{job.task.name}{self._source_line(slot, job)}" for slot, job in _at(left)})
        return WorkerStuck(
            f"{len(left)} handlers ran past their timeout and have not returned, more than the worker has slots "
            f"({self._slot_pool.concurrency}): {', '.join(tasks)}. The worker gives up its partitions and ends: start "
            "the process again, and give what these handlers wait for a timeout, or declare them with "
            "executor='process'"
        )

    def _source_line(self, slot: Slot, job: ClaimedJob) -> str:
        """The source line that a handler is at, not one of what it called; empty where its thread does not show it."""
        if slot.thread_id == self._event_loop.thread_id or job.task.runs_in_process:
            return ""
        frame = sys._current_frames().get(slot.thread_id)
        code = getattr(inspect.unwrap(job.task.function), "__code__", None)
        while frame is not None and frame.f_code is not code:
            frame = frame.f_back
        return "" if frame is None else f" (at {frame.f_code.co_filename}:{frame.f_lineno})"

    def _look_at_loop(self) -> WorkerStuck | None:
        now = ticks()
        # A process that was stopped, or a machine that slept, was not blocked meanwhile.
        passed = min((now - self._looked_at) / 1e9, 2 * LOOK_SECONDS)
        self._looked_at = now
        loop = self._asked_loop
        if loop is None or loop.is_closed() or self._answered == self._asked:
            if self._slot_pool.is_loop_blocked:
                log.warning("the event loop goes on after about %.0f s", self._silent_seconds)
                self._slot_pool.is_loop_blocked = False
                for backlog in self._slot_pool.backlogs:
                    backlog.signal()
            self._silent_seconds = 0.0
            self._ask()
            return None
        self._silent_seconds += passed
        if self._silent_seconds > self._grace_seconds:
            return self._give_up_loop()
        if self._silent_seconds > BLOCKED_SECONDS and not self._slot_pool.is_loop_blocked:
            self._slot_pool.is_loop_blocked = True
            job = self._event_loop.current_job()
            log_about(
                {} if job is None else job.log_fields,
                logging.WARNING,
                "the event loop is blocked%s: no async handler goes on, and none is started. What blocks it should "
                "await, run in asyncio.to_thread, or be a plain function. It is at:\n%s",
                self._blocking(),
                _stack_of(self._event_loop.thread_id),
            )
        return None

    def _ask(self) -> None:
        self._asked += 1
        number = self._asked

        def answer() -> None:
            self._answered = number

        self._asked_loop = self._event_loop.ask(answer)

    def _give_up_loop(self) -> WorkerStuck:
        """End the jobs on the loop: whoever runs them next has a loop that is not blocked."""
        text = f"the event loop was blocked for longer than {self._grace_seconds:g} s{self._blocking()}"
        stack = _stack_of(self._event_loop.thread_id)
        for slot in list(self._slot_pool.slots):
            job = slot.current
            if job is not None and job.task.is_async:
                self._slot_pool.take_away(slot, job, RuntimeError(text))
        return WorkerStuck(
            f"{text}. The worker gives up its partitions and ends: start the process again, and see that what blocks "
            f"the loop awaits, runs in asyncio.to_thread, or is a plain function. It is at:\n{stack}"
        )

    def _blocking(self) -> str:
        job = self._event_loop.current_job()
        return "" if job is None else f" by job {job.id} ({job.task.queue}/{job.task.name})"


def _at(slots: Iterable[Slot]) -> Iterator[tuple[Slot, ClaimedJob]]:
    """Those that have a job in hand, with it."""
    for slot in slots:
        if (job := slot.current) is not None:
            yield slot, job


def _stack_of(thread_id: int | None) -> str:
    """Where a thread is, innermost call last."""
    frame = None if thread_id is None else sys._current_frames().get(thread_id)
    if frame is None:
        return "  (its thread has ended)"
    return "".join(traceback.format_stack(frame)[-FRAMES:]).rstrip()
