"""The event loop of async handlers, in a thread of its own.

Its runners are coroutines that take jobs from the backlogs as threads do. A runner awaits one handler after another,
without a task per job; a handler with a timeout, or one that is cancelled, is interrupted where it awaits. One that
goes on all the same is left behind with its runner, and another runner is made. Async hooks, and async middleware of
plain handlers, run here too.

The loop itself is never replaced while it lives: sessions and pools of the handlers' are bound to it. The watchdog asks
here whether it answers, and which job it is at.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from penstock.clock import ticks
from penstock.worker.backlog import Backlog
from penstock.worker.batch_run import begin_batch, decode_members, end_batch, note_all, note_outcomes
from penstock.worker.claimed_job import ClaimedBatch, ClaimedJob
from penstock.worker.hooks import Hooks
from penstock.worker.running import begin_async, may_start, note_error, note_result, started
from penstock.worker.slot_pool import Slot, SlotPool

__all__ = ["EventLoop"]

log = logging.getLogger("penstock")

# So many jobs that used context.settle are settled at once.
SETTLERS = 8


class EventLoop:
    """The event loop of one worker."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._slot_pool: SlotPool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Not the loop's own executor: handlers may fill that with what hangs.
        self._settlers = ThreadPoolExecutor(SETTLERS, thread_name_prefix="penstock-settle")
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        # What was submitted and has not ended.
        self._submitted: set[Future[Any]] = set()
        self._idle_runners: deque[asyncio.Future[None]] = deque()
        self._runners: dict[asyncio.Task[None], Slot] = {}
        # Runners whose handlers do not come back.
        self._left_behind: dict[asyncio.Task[None], Slot] = {}

    def start(self, slot_pool: SlotPool) -> None:
        """Start the loop, unless it was."""
        with self._starting:
            if self._thread is not None:
                return
            self._slot_pool = slot_pool
            is_up = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(is_up,), name="penstock-loop", daemon=True)
            self._thread.start()
            is_up.wait()

    def submit(self, slot_pool: SlotPool, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """From any other thread: have a coroutine run on the loop, which is started where nothing needed it before."""
        self.start(slot_pool)
        loop = self._loop
        assert loop is not None  # noqa: S101
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:  # It was closed.
            coroutine.close()
            raise
        self._submitted.add(future)
        future.add_done_callback(self._submitted.discard)
        if loop.is_closed():
            self._end_submitted()
        return future

    def wake(self, count: int) -> None:
        """From any thread: let so many runners look for jobs."""
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

    def current_job(self) -> ClaimedJob | None:
        """From any thread: the job whose handler the loop is at, unless that is a task which a handler made."""
        task = None if self._loop is None else asyncio.current_task(self._loop)
        slot = None if task is None else (self._runners.get(task) or self._left_behind.get(task))
        return None if slot is None else slot.current

    def join(self) -> None:
        """Wait for the runners to end; one whose handler hangs is left behind."""
        if self._thread is not None:
            self._thread.join(timeout=1.0)
        self._settlers.shutdown(wait=False)

    def _run(self, is_up: threading.Event) -> None:
        assert self._slot_pool is not None  # noqa: S101
        while True:
            try:
                asyncio.run(self._main(is_up))
            except BaseException as error:  # A task of a handler's may raise SystemExit, or stop the loop.
                log.error("a handler ended the event loop (%s): %s", type(error).__name__, error)
            self._end_submitted()
            if self._slot_pool.is_closed:
                return
            self._start_over()

    def _end_submitted(self) -> None:
        """Let nobody wait for what a loop that is closed did not come to."""
        for future in list(self._submitted):
            with suppress(InvalidStateError):  # It has ended meanwhile.
                future.set_exception(RuntimeError("the event loop ended"))

    def _start_over(self) -> None:
        """End the jobs of a loop that was ended under them, and forget its runners."""
        assert self._slot_pool is not None  # noqa: S101
        slots = [*self._runners.values(), *self._left_behind.values()]
        self._runners, self._left_behind, self._idle_runners = {}, {}, deque()
        for slot in slots:
            job = slot.current
            if job is not None and job.ended == job.started > 0:
                _end_with(job, slot.backlog, RuntimeError("a handler ended the event loop that this one ran on"))
            self._slot_pool.drop(slot)

    async def _main(self, is_up: threading.Event) -> None:
        assert self._slot_pool is not None  # noqa: S101
        self._loop = asyncio.get_running_loop()
        is_up.set()
        while not self._slot_pool.is_closed:
            self._finished = self._loop.create_future()
            await self._finished
        await asyncio.gather(*self._runners, return_exceptions=True)

    def _wake(self, count: int) -> None:
        assert self._slot_pool is not None  # noqa: S101
        if self._slot_pool.is_closed and not self._finished.done():
            self._finished.set_result(None)
        while count and self._idle_runners:
            future = self._idle_runners.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1
        while count > 0 and len(self._runners) < self._slot_pool.concurrency and not self._slot_pool.is_closed:
            self._add_runner(self._slot_pool)
            count -= 1

    def _add_runner(self, slot_pool: SlotPool) -> None:
        slot = slot_pool.add_slot(lambda: self._leave_behind(runner))
        runner = asyncio.get_running_loop().create_task(self._run_jobs(slot_pool, slot))
        self._runners[runner] = slot
        runner.add_done_callback(self._forget)

    def _leave_behind(self, runner: asyncio.Task[None]) -> None:
        """From any thread: let another runner be made instead of one whose handler does not come back."""
        slot = self._runners.pop(runner, None)
        if slot is not None:
            self._left_behind[runner] = slot
        self.wake(1)

    def _forget(self, runner: asyncio.Task[None]) -> None:
        self._runners.pop(runner, None)
        self._left_behind.pop(runner, None)

    async def _run_jobs(self, slot_pool: SlotPool, slot: Slot) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not slot_pool.take_async(slot):
                if slot_pool.is_closed or slot.is_retired:
                    return
                future: asyncio.Future[None] = loop.create_future()
                self._idle_runners.append(future)
                await future
                continue
            backlog = slot.backlog
            while (job := slot.next()) is not None:
                if may_start(job, backlog):
                    if isinstance(job, ClaimedBatch):
                        await self._run_batch(job, backlog)
                    else:
                        await self._run_job(job, backlog)
            # Handlers that never wait would keep the loop from hearing anything else.
            await asyncio.sleep(0)

    async def _run_job(self, job: ClaimedJob, backlog: Backlog) -> None:
        """Run a job and hand it in."""
        runner = asyncio.current_task()
        loop = asyncio.get_running_loop()
        assert runner is not None  # noqa: S101
        job.interrupt = functools.partial(_request_interrupt, loop, runner, job)
        limit: asyncio.Timeout | None = None
        try:
            if self._hooks.wants_started:
                await self._hooks.call_async(started(job))
            run = begin_async(job, backlog.registration)
            if job.task.timeout is None:
                result = await run
            else:
                async with asyncio.timeout(job.task.timeout) as limit:
                    result = await run
            if result is not None:
                note_result(job, result)
        except BaseException as error:  # Whatever a handler raises is the end of its job, not of the runner.
            note_error(job, _explain_timeout(error, limit, job))
        job.interrupt = None
        job.ended = ticks()
        if job.is_split:
            await loop.run_in_executor(self._settlers, _settle, job, backlog)
        else:
            backlog.end(job)
        while runner.cancelling():
            runner.uncancel()

    async def _run_batch(self, batch: ClaimedBatch, backlog: Backlog) -> None:
        """Run a batch and hand it in."""
        runner = asyncio.current_task()
        assert runner is not None  # noqa: S101
        batch.interrupt = functools.partial(_request_interrupt, asyncio.get_running_loop(), runner, batch)
        limit: asyncio.Timeout | None = None
        items, jobs = decode_members(batch)
        for job in jobs:
            job.interrupt = batch.interrupt_if_unwanted
        if jobs:
            try:
                if self._hooks.wants_started:
                    for job in jobs:
                        await self._hooks.call_async(started(job))
                context, call = begin_batch(batch, items, jobs, backlog.registration)
                async with asyncio.timeout(batch.task.timeout) as limit:
                    given = await batch.task.middleware.run_async(context, items, call)
                note_outcomes(batch, jobs, given, backlog)
            except BaseException as error:  # Whatever a handler raises is the end of its batch, not of the runner.
                note_all(jobs, _explain_timeout(error, limit, batch))
        batch.interrupt = None
        end_batch(batch)
        backlog.end_batch(batch)
        while runner.cancelling():
            runner.uncancel()


def _end_with(job: ClaimedJob, backlog: Backlog, error: BaseException) -> None:
    """Hand in a job, or a batch, whose handler did not return."""
    if isinstance(job, ClaimedBatch):
        note_all(job.members, error)
        end_batch(job)
        backlog.end_batch(job)
        return
    note_error(job, error)
    job.interrupt = None
    job.ended = ticks()
    if job.is_split:
        _settle(job, backlog)
    else:
        backlog.end(job)


def _explain_timeout(error: BaseException, limit: asyncio.Timeout | None, job: ClaimedJob) -> BaseException:
    """What a handler raised; where it was interrupted at its timeout, an error that says so."""
    is_late = isinstance(error, TimeoutError) and limit is not None and limit.expired()
    if not is_late or not isinstance(error.__cause__, asyncio.CancelledError):
        return error
    late = TimeoutError(f"the handler ran longer than its timeout of {job.task.timeout:g} s")
    # Where the handler was then.
    late.__cause__ = error.__cause__
    return late


def _settle(job: ClaimedJob, backlog: Backlog) -> None:
    if backlog.split_leases.settle(job):
        backlog.end(job)


def _request_interrupt(loop: asyncio.AbstractEventLoop, runner: asyncio.Task[None], job: ClaimedJob) -> None:
    loop.call_soon_threadsafe(_interrupt, runner, job)


def _interrupt(runner: asyncio.Task[None], job: ClaimedJob) -> None:
    if job.interrupt is not None:
        runner.cancel()
