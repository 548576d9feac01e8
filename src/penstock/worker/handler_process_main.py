"""What a handler process runs: it waits for a handler's name and arguments, calls it, answers, and waits again."""

from __future__ import annotations

import functools
import importlib
import pickle
import signal
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any

from penstock.errors import InvalidInput
from penstock.log_records import LogSetting, current_job, write_log
from penstock.model.checks import checked_progress
from penstock.model.encoding import encode_result
from penstock.model.error_text import describe, summarize
from penstock.task.arguments import Arguments
from penstock.task.batch_arguments import BatchArguments, find_breach
from penstock.task.context import BatchContext, Context
from penstock.task.middleware import Middleware
from penstock.task.own_loop import run_on_own_loop

__all__ = ["Answers", "Failed", "ProcessBatchContext", "ProcessContext", "Progress", "Returned", "Stopping", "main"]


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler returned; its result as JSON, None for none."""

    result: bytes | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised; the error as far as it can travel, and its text with the traceback."""

    error: BaseException
    text: str
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Answers:
    """A batch handler returned: what it gave for each job; or how it broke its contract."""

    each: list[Returned | Failed]
    breach: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The handler said how far a job has come."""

    job_id: int
    value: float | None
    note: str | None


@dataclass(frozen=True, slots=True)
class Stopping:
    """From the worker: it was told to stop, and waits for the handler."""


class Parent:
    """The worker, seen from the process. A handler may ask whether it stops, from any thread."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self._is_stopping = False
        self._lock = threading.Lock()

    def receive(self) -> Any:
        """The next handler to run."""
        while isinstance(message := self.pipe.recv(), Stopping):
            self._is_stopping = True
        return message

    @property
    def is_stopping(self) -> bool:
        """While a handler runs nothing else is sent."""
        with self._lock:
            if not self._is_stopping and self.pipe.poll():
                self._is_stopping = isinstance(self.pipe.recv(), Stopping)
            return self._is_stopping


class ProcessContext:
    """The context of a handler in a process: no transaction crosses that border, so it cannot settle."""

    # Asked to stop, the process ends; there is nobody left to ask.
    is_cancelled = False

    def __init__(self, parent: Parent, facts: dict[str, Any]) -> None:
        self._parent = parent
        self.job_id: int = facts["job_id"]
        self.attempt: int = facts["attempt"]
        self.lease: int = facts["lease"]
        self.queue: str = facts["queue"]
        self.task: str = facts["task"]
        self.key: str | bytes | None = facts["key"]
        self.tags: list[str] = facts["tags"]
        self.tenant: str | None = facts["tenant"]

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was told to stop, and waits for this handler; known within a second."""
        return self._parent.is_stopping

    def progress(self, value: float | None = None, note: str | None = None) -> None:
        """Say how far the job has come."""
        self._parent.pipe.send(Progress(self.job_id, *checked_progress(value, note)))

    def settle(self, connection: Any, result: Any = None) -> None:
        """Refused."""
        raise InvalidInput("executor", "a handler in a process cannot settle its job; declare it without executor=")

    async def asettle(self, connection: Any, result: Any = None) -> None:
        """Refused."""
        self.settle(connection, result)


class ProcessBatchContext:
    """The context of a batch handler in a process."""

    is_cancelled = False

    def __init__(self, jobs: list[ProcessContext]) -> None:
        self.jobs = jobs
        self.job_id = jobs[0].job_id
        self.attempt = jobs[0].attempt
        self.queue = jobs[0].queue
        self.task = jobs[0].task

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was told to stop, and waits for this handler; known within a second."""
        return self.jobs[0].is_stopping

    def progress(self, value: float | None = None, note: str | None = None) -> None:
        """Say how far the batch has come; shown for each of its jobs."""
        for job in self.jobs:
            job.progress(value, note)


def main(pipe: Pipe, log_setting: LogSetting | None) -> None:
    """Serve until the parent closes the pipe. The log is written as the parent writes it, if it does."""
    if log_setting is not None:
        write_log(log_setting)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send(None)  # Up: from now on a handler's time counts.
    parent = Parent(pipe)
    while True:
        try:
            handler, middleware, args, facts = parent.receive()
        except (EOFError, OSError):
            return
        answer: Returned | Failed | Answers
        first = facts[0] if isinstance(facts, list) else facts
        current_job.note({name: first[name] for name in ("job_id", "queue", "task", "attempt")}.copy)
        try:
            if isinstance(facts, list):
                answer = _run_batch(handler, middleware, args, [ProcessContext(parent, each) for each in facts])
            else:
                answer = _answer(_run(handler, middleware, args, ProcessContext(parent, facts)))
        except BaseException as error:  # Whatever a handler raises is its job's end, not its process's.
            answer = Failed(_portable(error), describe(error))
        pipe.send(answer)


def _run(located: tuple[str, str], middleware: list[tuple[str, str]], args: str, context: Context) -> Any:
    """Call the handler within the middleware."""
    function = _find(*located)
    arguments = Arguments(function)
    named = arguments.decode(args)
    given = {} if arguments.context_parameter is None else {arguments.context_parameter: context}
    return _around(middleware).run(context, named, lambda: function(**named, **given), run_on_own_loop)


def _around(middleware: list[tuple[str, str]]) -> Middleware:
    around = Middleware()
    around.functions = tuple(_find(*each) for each in middleware)
    return around


def _run_batch(
    located: tuple[str, str], middleware: list[tuple[str, str]], args: list[str], contexts: list[ProcessContext]
) -> Answers:
    """Call a batch handler within the middleware; what it raises is raised."""
    function = _find(*located)
    arguments = BatchArguments(function)
    answers: list[Returned | Failed] = [Returned(None)] * len(args)
    items, given = [], []
    for index, each in enumerate(args):
        try:
            items.append(arguments.decode_item(each))
            given.append(index)
        except BaseException as error:  # A model's own validators may raise anything.
            answers[index] = Failed(_portable(error), describe(error))
    if not given:
        return Answers(answers)
    context: BatchContext = ProcessBatchContext([contexts[index] for index in given])
    call = functools.partial(function, **arguments.named(items, context))
    outcomes = _around(middleware).run(context, items, call, run_on_own_loop)
    breach = find_breach(outcomes, len(given))
    if breach is not None:
        return Answers([], breach)
    for index, outcome in zip(given, outcomes or (), strict=False):
        is_error = isinstance(outcome, BaseException)
        answers[index] = Failed(_portable(outcome), describe(outcome)) if is_error else _answer(outcome)
    return Answers(answers)


def _answer(result: Any) -> Returned | Failed:
    try:
        return Returned(None if result is None else encode_result(result))
    except InvalidInput as error:
        return Failed(error, describe(error), is_final=True)


def _find(module: str, name: str) -> Any:
    # Spawning has imported the program's main module under another name.
    found: Any = sys.modules.get("__mp_main__") if module == "__main__" else None
    if found is None:
        found = importlib.import_module(module)
    for attribute in name.split("."):
        found = getattr(found, attribute)
    # A decorated handler's name leads to its task, which knows the function.
    return getattr(getattr(found, "definition", None), "function", found)


def _portable(error: BaseException) -> BaseException:
    """The error if the parent can rebuild it, else one of the same name and text."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  (made here, a line above)
    except BaseException:  # What an exception does when it is pickled is the user's own code.
        return RuntimeError(summarize(error))
    return error
