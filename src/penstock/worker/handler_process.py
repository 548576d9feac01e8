"""A handler process: runs handlers declared with executor="process". Each thread that needs one has one of its own.

The worker sends the module and name of the handler and of each middleware, and the arguments as JSON; nothing is
unpickled that came from a job. Middleware runs where the handler does, in the process. A process that dies, by exit,
signal or memory, costs its job one attempt; one that hangs past the timeout is killed. When the worker's own process
dies, so does this one.

It is a fresh interpreter that is not started by `multiprocessing`: that would have it run the program's main script
again, which enqueues and works unless it is guarded. Only a handler that is in the main script has that imported.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from multiprocessing.spawn import get_executable, get_preparation_data
from typing import Any

from penstock.clock import system, ticks
from penstock.errors import InvalidInput
from penstock.log_records import log_setting
from penstock.task.definition import TaskDefinition
from penstock.task.middleware import name_of
from penstock.task.verdict import Verdict
from penstock.worker.backlog import Backlog
from penstock.worker.batch_run import break_contract, end_batch, note_all, suspect_all
from penstock.worker.claimed_job import ClaimedBatch, ClaimedJob
from penstock.worker.context import Registration, WorkerContext
from penstock.worker.handler_process_main import MAIN_MODULE, Answers, Failed, Progress, Returned, Stopping
from penstock.worker.hooks import Hooks
from penstock.worker.running import note_error, started
from penstock.worker.stop_request import StopRequest

__all__ = ["HandlerProcess", "ProcessDied", "check_middleware"]

# A process that is not up by then hangs; what it imports may take long.
START_SECONDS = 60.0
LOOK_SECONDS = 1.0
# What the process runs. Where modules are found is said first: else it might not find Penstock.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from multiprocessing.connection import Connection
pipe = Connection(int(sys.argv[1]))
sys.path[:] = pipe.recv()
from penstock.worker.handler_process_main import main
main(pipe)
"""


class ProcessDied(Exception):
    """The process ended before its handler did."""


class HandlerProcess:
    """One process, started when first needed and again after each death."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Pipe | None = None
        self._is_told_to_stop = False

    @property
    def is_started(self) -> bool:
        """Whether there is one."""
        return self._process is not None

    def run(self, job: ClaimedJob, backlog: Backlog) -> None:
        """Run a job, or a batch, in the process and hand it in."""
        job.interrupt = self._kill
        if isinstance(job, ClaimedBatch):
            self._run_batch(job, backlog)
            return
        registration = backlog.registration
        try:
            if self._hooks.wants_started:
                self._hooks.call(started(job))
            facts = _facts(WorkerContext(job, registration))
            self._note_answer(job, self._converse(job, job.args, facts, registration))
        except BaseException as error:  # A process may fail in any way; its thread goes on.
            note_error(job, error)
        job.interrupt = None
        job.ended = ticks()
        backlog.end(job)

    def _run_batch(self, batch: ClaimedBatch, backlog: Backlog) -> None:
        jobs, registration = batch.members, backlog.registration
        for job in jobs:
            job.interrupt = batch.interrupt_if_unwanted
        try:
            if self._hooks.wants_started:
                for job in jobs:
                    self._hooks.call(started(job))
            facts = [_facts(WorkerContext(job, registration)) for job in jobs]
            answer = self._converse(batch, [job.args for job in jobs], facts, registration)
            if isinstance(answer, Answers):
                rest = [job for index, job in enumerate(jobs) if index not in answer.each]
                if answer.breach is not None:
                    break_contract(batch, rest, answer.breach, backlog)
                elif answer.raised is not None:
                    note_all(rest, answer.raised.error, answer.raised.text)
                for index, each in answer.each.items():
                    self._note_answer(jobs[index], each)
            elif isinstance(answer, Failed):
                note_all(jobs, answer.error, answer.text)
        except ProcessDied as error:
            suspect_all(jobs, error)
        except BaseException as error:  # A process may fail in any way; its thread goes on.
            note_all(jobs, error)
        batch.interrupt = None
        end_batch(batch)
        backlog.end_batch(batch)

    def close(self) -> None:
        """End the process."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._process is not None:
            try:
                self._process.wait(timeout=1.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _converse(
        self, job: ClaimedJob, args: str | list[str], facts: Any, registration: Registration
    ) -> Returned | Failed | Answers:
        """Have a job run, or, with the arguments and facts of several, a batch; what the process answers."""
        try:
            handler, middleware = _locate_handler(job.task), _locate_middleware(job.task)
            pipe = self._ensure_started([handler, *middleware])
            deadline = None if job.task.timeout is None else system.monotonic() + job.task.timeout
            pipe.send((handler, middleware, args, facts))
            while True:
                if not self._has_answered(pipe, deadline, registration.stop_request):
                    self._kill()
                    self.close()
                    raise TimeoutError(f"the handler ran longer than its timeout of {job.task.timeout:g} s")
                message: Returned | Failed | Answers | Progress = pipe.recv()
                if not isinstance(message, Progress):
                    return message
                registration.progress(message.job_id, message.value, message.note)
        except TimeoutError:  # It is an OSError too, and says more.
            raise
        except (EOFError, OSError):
            code = self._exit_code()
            self.close()
            raise ProcessDied(f"the handler's process died with {code}") from None

    def _note_answer(self, job: ClaimedJob, answer: Returned | Failed | Answers) -> None:
        if isinstance(answer, Returned):
            job.result = answer.result
        elif isinstance(answer, Failed) and answer.is_final:
            job.verdict = Verdict("failed", answer.text)
        elif isinstance(answer, Failed):
            # Traceback and causes do not travel with the exception, its text does.
            note_error(job, answer.error, answer.text)

    def _has_answered(self, pipe: Pipe, deadline: float | None, stop_request: StopRequest | None = None) -> bool:
        """Wait for the process to answer, or to die; False where it does neither by the deadline. Meanwhile it is told
        that the worker is to stop.
        """
        while True:
            if stop_request is not None and stop_request.is_made and not self._is_told_to_stop:
                self._is_told_to_stop = True
                pipe.send(Stopping())
            left = LOOK_SECONDS if deadline is None else deadline - system.monotonic()
            if pipe.poll(min(max(left, 0.0), LOOK_SECONDS)):
                return True
            if left <= 0:
                return False
            # A process that the handler forked keeps the pipe open after its death.
            if self._process is not None and self._process.poll() is not None and not pipe.poll(0):
                raise EOFError

    def _ensure_started(self, wanted: list[tuple[str, str]]) -> Pipe:
        if self._pipe is None or self._process is None or self._process.poll() is not None:
            self.close()
            self._is_told_to_stop = False
            self._pipe = self._start(wanted)
            if not self._has_answered(self._pipe, system.monotonic() + START_SECONDS):
                self._kill()
                self.close()
                raise TimeoutError(f"the handler's process was not up within {START_SECONDS:g} s")
            self._pipe.recv()
        return self._pipe

    def _start(self, wanted: list[tuple[str, str]]) -> Pipe:
        """Start the process, with these functions imported; the pipe to it."""
        program = get_preparation_data("penstock-handler")
        main_module = {name: program[name] for name in MAIN_MODULE if name in program}
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # As multiprocessing does.
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            descriptor = theirs.fileno()
            command = [get_executable(), *flags, "-c", PROGRAM, str(descriptor)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[descriptor])
        ours.send(program["sys_path"])
        ours.send((sys.argv, main_module, log_setting(), wanted))
        return ours

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _exit_code(self) -> str:
        if self._process is None:
            return "an unknown exit code"
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)
        code = self._process.returncode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def check_middleware(tasks: Iterable[TaskDefinition]) -> None:
    """Refuse middleware that a process would not find, where some of these tasks run in one."""
    for task in tasks:
        if task.runs_in_process:
            _locate_middleware(task)


def _locate_middleware(task: TaskDefinition) -> list[tuple[str, str]]:
    located = []
    for function in task.middleware.functions:
        found = _locate(function)
        if found is None:
            raise InvalidInput(
                "middleware",
                f"{name_of(function)} must be at the top of a module, with @app.middleware: the processes of task "
                f"{task.name!r}, which has executor='process', import it from there",
            )
        located.append(found)
    return located


def _locate_handler(task: TaskDefinition) -> tuple[str, str]:
    found = _locate(task.function)
    if found is None:
        raise InvalidInput(
            "executor", f"the handler of task {task.name!r} must be at the top of a module for 'process'"
        )
    return found


def _locate(function: Any) -> tuple[str, str] | None:
    """The module of a function and its name there, where it is at the top of one."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name or "<locals>" in name or "<lambda>" in name:
        return None
    return module, name


def _facts(context: WorkerContext) -> dict[str, Any]:
    """What a handler in the process may ask its context for."""
    names = ("job_id", "attempt", "lease", "queue", "task", "key", "attributes")
    return {name: getattr(context, name) for name in names}
