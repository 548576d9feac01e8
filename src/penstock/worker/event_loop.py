"""Lanes for async handlers: coroutines on one event loop, in a thread of its own, that take from the same lines.

A lane awaits one handler after another, without a task per job; a handler with a timeout, or one that is cancelled,
is interrupted where it awaits. One that goes on all the same is left behind with its lane, and another lane is made.

The loop itself is never replaced while it lives: sessions and pools of the handlers' are bound to it. Whoever watches
it learns here whether it answers, and what keeps it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from penstock.clock import ticks
from penstock.worker.backlog import Line
from penstock.worker.claimed_job import HeldJob
from penstock.worker.hooks import Hooks
from penstock.worker.running import arguments_of, may_start, note_error, note_result, tell_started
from penstock.worker.slot_pool import Floor, Slot

__all__ = ["Lanes"]

log = logging.getLogger("penstock")

# So many jobs with leases of their own are settled at once.
SETTLERS = 8


class Lanes:
    """The event loop of one worker."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._floor: Floor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Not the loop's own executor: handlers may fill that with what hangs.
        self._settlers = ThreadPoolExecutor(SETTLERS, thread_name_prefix="penstock-settle")
        self._thread: threading.Thread | None = None
        self._idle: deque[asyncio.Future[None]] = deque()
        self._lanes: dict[asyncio.Task[None], Slot] = {}
        # Lanes whose handlers do not come back.
        self._left_behind: dict[asyncio.Task[None], Slot] = {}

    def start(self, floor: Floor) -> None:
        """Start the loop."""
        self._floor = floor
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name="penstock-loop", daemon=True)
        self._thread.start()
        started.wait()

    def wake(self, count: int) -> None:
        """From any thread: let so many lanes look at the line."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake, count)

    def ask(self, answer: Callable[[], None]) -> asyncio.AbstractEventLoop | None:
        """From any thread: have the loop call this as soon as it gets to it; the loop, where one is there to ask."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return None
        try:
            loop.call_soon_threadsafe(answer)
        except RuntimeError:  # It was closed in between.
            return None
        return loop

    @property
    def thread_id(self) -> int | None:
        """The thread of the loop."""
        return None if self._thread is None else self._thread.ident

    def current_job(self) -> HeldJob | None:
        """From any thread: the job whose handler the loop is at, unless that is a task which a handler made."""
        task = None if self._loop is None else asyncio.current_task(self._loop)
        slot = None if task is None else (self._lanes.get(task) or self._left_behind.get(task))
        return None if slot is None else slot.current

    def join(self) -> None:
        """Wait for the lanes to end; one whose handler hangs is left behind."""
        if self._thread is not None:
            self._thread.join(timeout=1.0)
        self._settlers.shutdown(wait=False)

    def _run(self, started: threading.Event) -> None:
        assert self._floor is not None  # noqa: S101
        while True:
            try:
                asyncio.run(self._main(started))
            except BaseException as error:  # A task of a handler's may raise SystemExit, or stop the loop.
                log.error("a handler ended the event loop (%s): %s", type(error).__name__, error)
            if self._floor.is_closed:
                return
            self._start_over()

    def _start_over(self) -> None:
        """End the jobs of a loop that was ended under them, and forget its lanes."""
        assert self._floor is not None  # noqa: S101
        slots = [*self._lanes.values(), *self._left_behind.values()]
        self._lanes, self._left_behind, self._idle = {}, {}, deque()
        for slot in slots:
            job = slot.current
            if job is not None and job.ended == job.started > 0:
                note_error(job, RuntimeError("a handler ended the event loop that this one ran on"))
                job.ended = ticks()
                if job.is_split:
                    _settle(job, slot.line)
                else:
                    slot.line.end(job)
            self._floor.drop(slot)

    async def _main(self, started: threading.Event) -> None:
        assert self._floor is not None  # noqa: S101
        self._loop = asyncio.get_running_loop()
        started.set()
        while not self._floor.is_closed:
            self._finished = self._loop.create_future()
            await self._finished
        await asyncio.gather(*self._lanes, return_exceptions=True)

    def _wake(self, count: int) -> None:
        assert self._floor is not None  # noqa: S101
        if self._floor.is_closed and not self._finished.done():
            self._finished.set_result(None)
        while count and self._idle:
            future = self._idle.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1
        while count > 0 and len(self._lanes) < self._floor.concurrency and not self._floor.is_closed:
            self._make_lane(self._floor)
            count -= 1

    def _make_lane(self, floor: Floor) -> None:
        slot = floor.slot(lambda: self._leave_behind(lane))
        lane = asyncio.get_running_loop().create_task(self._lane(floor, slot))
        self._lanes[lane] = slot
        lane.add_done_callback(self._forget)

    def _leave_behind(self, lane: asyncio.Task[None]) -> None:
        """From any thread: another lane may be made in the place of one whose handler does not come back."""
        slot = self._lanes.pop(lane, None)
        if slot is not None:
            self._left_behind[lane] = slot
        self.wake(1)

    def _forget(self, lane: asyncio.Task[None]) -> None:
        self._lanes.pop(lane, None)
        self._left_behind.pop(lane, None)

    async def _lane(self, floor: Floor, slot: Slot) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not floor.take_async(slot):
                if floor.is_closed or slot.is_retired:
                    return
                future: asyncio.Future[None] = loop.create_future()
                self._idle.append(future)
                await future
                continue
            line = slot.line
            while (job := slot.next()) is not None:
                if may_start(job, line):
                    await self._run_job(job, line)
            # Handlers that never wait would keep the loop from hearing anything else.
            await asyncio.sleep(0)

    async def _run_job(self, job: HeldJob, line: Line) -> None:
        """Run a job and hand it in."""
        lane = asyncio.current_task()
        loop = asyncio.get_running_loop()
        assert lane is not None  # noqa: S101
        job.interrupt = functools.partial(_ask, loop, lane, job)
        try:
            if self._hooks.wants("started"):
                tell_started(job, self._hooks)
            coroutine = job.task.function(**arguments_of(job, line.workplace))
            if job.task.timeout is None:
                result = await coroutine
            else:
                async with asyncio.timeout(job.task.timeout):
                    result = await coroutine
            if result is not None:
                note_result(job, result)
        except TimeoutError as error:
            if job.task.timeout is not None and not str(error):
                error = TimeoutError(f"the handler ran longer than its timeout of {job.task.timeout:g} s")
            note_error(job, error)
        except BaseException as error:  # Whatever a handler raises is the end of its job, not of the lane.
            note_error(job, error)
        job.interrupt = None
        job.ended = ticks()
        if job.is_split:
            await loop.run_in_executor(self._settlers, _settle, job, line)
        else:
            line.end(job)
        while lane.cancelling():
            lane.uncancel()


def _settle(job: HeldJob, line: Line) -> None:
    if line.own_leases.settle(job):
        line.end(job)


def _ask(loop: asyncio.AbstractEventLoop, lane: asyncio.Task[None], job: HeldJob) -> None:
    loop.call_soon_threadsafe(_interrupt, lane, job)


def _interrupt(lane: asyncio.Task[None], job: HeldJob) -> None:
    if job.interrupt is not None:
        lane.cancel()
