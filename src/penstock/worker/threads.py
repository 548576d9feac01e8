"""Threads for plain handlers: as many as the worker has slots, started when first needed.

A thread takes a job from the line, runs it, hands it in and takes the next, without a future or a task per job. It
drives a child process of its own for handlers declared with executor="process".
"""

from __future__ import annotations

import threading

from penstock.clock import system
from penstock.worker.children import Child
from penstock.worker.context import Workplace
from penstock.worker.hooks import Hooks
from penstock.worker.line import Line
from penstock.worker.own_lease import settle_own_lease
from penstock.worker.running import may_start, run_inline

__all__ = ["Threads"]


class Threads:
    """The threads of one worker."""

    def __init__(self, line: Line, workplace: Workplace, hooks: Hooks) -> None:
        self._line = line
        self._workplace = workplace
        self._hooks = hooks
        self._threads: list[threading.Thread] = []

    def start(self, count: int) -> None:
        """Have at least so many threads."""
        while len(self._threads) < min(count, self._line.concurrency):
            thread = threading.Thread(target=self._work, name=f"penstock-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def join(self) -> None:
        """Wait for threads whose handlers have returned; one that hangs in a handler is left behind."""
        deadline = system.monotonic() + 1.0
        for thread in self._threads:
            thread.join(timeout=max(deadline - system.monotonic(), 0.0))

    def _work(self) -> None:
        line, workplace, hooks = self._line, self._workplace, self._hooks
        slot = line.slot()
        child: Child | None = None
        try:
            while line.take(slot):
                while (job := slot.next()) is not None:
                    if not may_start(job, line):
                        continue
                    if job.task.runs_in_process:
                        child = child or Child(workplace, hooks)
                        child.run(job)
                    else:
                        run_inline(job, workplace, hooks)
                        if job.own_lease is not None:
                            settle_own_lease(job, workplace)
                    line.end(job)
        finally:
            if child is not None:
                child.close()
