"""A handler process: runs handlers declared with executor="process". Each thread that needs one has one of its own.

The worker sends the module and name of the handler and the arguments as JSON; nothing is unpickled that came from a
job. A process that dies, by exit, signal or memory, costs its job one attempt; one that hangs past the timeout is
killed.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection as Pipe
from typing import Any

from penstock.clock import system, ticks
from penstock.errors import InvalidInput
from penstock.task.definition import TaskDefinition
from penstock.task.verdict import Verdict
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.context import Context, Registration
from penstock.worker.handler_process_main import Failed, Progress, Returned, main
from penstock.worker.hooks import Hooks
from penstock.worker.running import note_error, tell_started

__all__ = ["HandlerProcess", "ProcessDied"]

# A process that is not up by then hangs; what it imports may take long.
START_SECONDS = 60.0
LOOK_SECONDS = 1.0
_spawn = multiprocessing.get_context("spawn")


class ProcessDied(Exception):
    """The process ended before its handler did."""


class HandlerProcess:
    """One process, started when first needed and again after each death."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Pipe | None = None

    def run(self, job: ClaimedJob, registration: Registration) -> None:
        """Run a job in the process and note its end."""
        job.interrupt = self._kill
        try:
            if self._hooks.wants("started"):
                tell_started(job, self._hooks)
            self._converse(job, registration)
        except BaseException as error:  # A process may fail in any way; its thread goes on.
            note_error(job, error)
        job.interrupt = None
        job.ended = ticks()

    def close(self) -> None:
        """End the process."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._process is not None:
            self._process.join(timeout=1.0)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
            self._process = None

    def _converse(self, job: ClaimedJob, registration: Registration) -> None:
        try:
            pipe = self._ensure_started()
            deadline = None if job.task.timeout is None else system.monotonic() + job.task.timeout
            pipe.send((*_locate_handler(job.task), job.args, _facts(Context(job, registration))))
            while True:
                if not self._has_answered(pipe, deadline):
                    self._kill()
                    self.close()
                    raise TimeoutError(f"the handler ran longer than its timeout of {job.task.timeout:g} s")
                message = pipe.recv()
                if isinstance(message, Progress):
                    registration.progress(job.id, message.value, message.note)
                elif isinstance(message, Returned):
                    job.result = message.result
                    return
                else:
                    self._note_failure(job, message)
                    return
        except TimeoutError:  # It is an OSError too, and says more.
            raise
        except (EOFError, OSError):
            code = self._exit_code()
            self.close()
            raise ProcessDied(f"the handler's process died with {code}") from None

    def _note_failure(self, job: ClaimedJob, failed: Failed) -> None:
        if failed.is_final:
            job.verdict = Verdict("failed", failed.text)
            return
        # Traceback and causes do not travel with the exception, its text does.
        note_error(job, failed.error, failed.text)

    def _has_answered(self, pipe: Pipe, deadline: float | None) -> bool:
        """Wait for the process to answer, or to die; False where it does neither by the deadline."""
        while True:
            left = LOOK_SECONDS if deadline is None else deadline - system.monotonic()
            if pipe.poll(min(max(left, 0.0), LOOK_SECONDS)):
                return True
            if left <= 0:
                return False
            # A process that the handler forked keeps the pipe open after its death.
            if self._process is not None and not self._process.is_alive() and not pipe.poll(0):
                raise EOFError

    def _ensure_started(self) -> Pipe:
        if self._pipe is None or self._process is None or not self._process.is_alive():
            self.close()
            self._pipe, theirs = _spawn.Pipe()
            self._process = _spawn.Process(target=main, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
            if not self._has_answered(self._pipe, system.monotonic() + START_SECONDS):
                self._kill()
                self.close()
                raise TimeoutError(f"the handler's process was not up within {START_SECONDS:g} s")
            self._pipe.recv()
        return self._pipe

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _exit_code(self) -> str:
        if self._process is None:
            return "an unknown exit code"
        self._process.join(timeout=1.0)
        code = self._process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _locate_handler(task: TaskDefinition) -> tuple[str, str]:
    function = task.function
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name or "<locals>" in name or "<lambda>" in name:
        raise InvalidInput(
            "executor", f"the handler of task {task.name!r} must be at the top of a module for 'process'"
        )
    return module, name


def _facts(context: Context) -> dict[str, Any]:
    """What a handler in the process may ask its context for."""
    names = ("job_id", "attempt", "lease", "queue", "task", "key", "tags", "tenant")
    return {name: getattr(context, name) for name in names}
