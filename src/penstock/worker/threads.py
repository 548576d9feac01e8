"""Threads for plain handlers: as many as the worker has slots, started when first needed.

A thread takes a job from a backlog, runs it, hands it in and takes the next, without a future or a task per job. It
drives a process of its own for handlers declared with executor="process". No thread can be ended from outside:
one whose handler does not come back is left behind, and another is started in its place.
"""

from __future__ import annotations

import functools
import logging
import threading

from penstock.clock import system
from penstock.task.own_loop import Submit
from penstock.worker.batch_run import run_batch_inline
from penstock.worker.claimed_job import ClaimedBatch
from penstock.worker.handler_process import HandlerProcess
from penstock.worker.hooks import Hooks
from penstock.worker.quick_run import run_quickly
from penstock.worker.running import may_start, run_inline
from penstock.worker.slot_pool import SlotPool

__all__ = ["Threads"]

log = logging.getLogger("penstock")


class Threads:
    """The threads of one worker. `submit` leads to its event loop."""

    def __init__(self, slot_pool: SlotPool, hooks: Hooks, submit: Submit) -> None:
        self._slot_pool = slot_pool
        self._hooks = hooks
        self._submit = submit
        self._threads: list[threading.Thread] = []
        self._started = 0
        self._processes: set[HandlerProcess] = set()
        self._lock = threading.Lock()

    def start(self, count: int) -> None:
        """Have at least so many threads."""
        count = min(count, self._slot_pool.concurrency)
        if len(self._threads) >= count:
            return
        with self._lock:
            while len(self._threads) < count:
                thread = threading.Thread(target=self._work, name=f"penstock-handler-{self._started}", daemon=True)
                thread.start()
                self._started += 1
                self._threads.append(thread)

    @property
    def processes(self) -> int:
        """From any thread: how many handler processes run."""
        return sum(each.is_started for each in self._processes.copy())

    def join(self) -> None:
        """Wait for threads whose handlers have returned; one that hangs in a handler is left behind."""
        deadline = system.monotonic() + 1.0
        for thread in self._threads:
            thread.join(timeout=max(deadline - system.monotonic(), 0.0))

    def _replace(self, thread: threading.Thread) -> None:
        """Leave a thread behind, and have another in its place."""
        with self._lock:
            self._threads.remove(thread)
            count = len(self._threads) + 1
        try:
            self.start(count)
        except RuntimeError as error:  # The system gives no more threads; it is tried again with the next jobs.
            log.error("no thread could be started in place of one whose handler hangs: %s", error)

    def _work(self) -> None:
        slot_pool, hooks, submit = self._slot_pool, self._hooks, self._submit
        slot = slot_pool.add_slot(functools.partial(self._replace, threading.current_thread()))
        process: HandlerProcess | None = None
        try:
            while slot_pool.take(slot):
                backlog = slot.backlog
                registration = backlog.registration
                while (job := run_quickly(slot, hooks)) is not None:
                    if not may_start(job, backlog):
                        continue
                    if job.task.runs_in_process:
                        if process is None:
                            process = HandlerProcess(hooks)
                            self._processes.add(process)
                        process.run(job, backlog)
                    elif isinstance(job, ClaimedBatch):
                        run_batch_inline(job, backlog, hooks, submit)
                    else:
                        run_inline(job, registration, hooks, submit)
                        if not job.is_split or backlog.split_leases.settle(job):
                            backlog.end(job)
        finally:
            if process is not None:
                process.close()
                self._processes.discard(process)
