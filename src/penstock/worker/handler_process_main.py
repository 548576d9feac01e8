"""What a handler process runs: it waits for a handler's name and arguments, calls it, answers, and waits again.

A thread reads what the worker sends, also while a handler runs: so the handler hears that the worker stops, and the
process ends when the worker is gone.
"""

from __future__ import annotations

import functools
import importlib
import os
import pickle
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.spawn import prepare
from queue import SimpleQueue
from typing import Any

from penstock.errors import InvalidInput, PenstockError
from penstock.log_records import current_job, write_log
from penstock.model.checks import checked_progress
from penstock.model.encoding import encode_result
from penstock.model.error_text import describe, summarize
from penstock.model.trace_context import TraceContext, trace_of
from penstock.task.arguments import Arguments
from penstock.task.batch_arguments import BatchArguments, find_breach
from penstock.task.batch_context import JobsContext
from penstock.task.context import BatchContext, Context
from penstock.task.middleware import Middleware
from penstock.task.own_loop import run_on_own_loop

__all__ = [
    "MAIN_MODULE",
    "Answers",
    "Failed",
    "ProcessContext",
    "Progress",
    "Returned",
    "Stopping",
    "main",
    "refuse_in_main_import",
]

# What `multiprocessing` calls the name, or the path, of the program's main module.
MAIN_MODULE = ("init_main_from_name", "init_main_from_path")


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
    """A batch handler ended. `each` is what is known of single jobs, by their place in the batch: what it gave for one,
    or why one never reached it. The others succeeded, unless it broke its contract or raised.
    """

    each: dict[int, Returned | Failed]
    breach: str | None = None
    raised: Failed | None = None


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
    """The worker, seen from the process. A handler may use it from any thread, also from one that outlives it."""

    def __init__(self, pipe: Pipe) -> None:
        self.is_stopping = False
        self._pipe = pipe
        self._sending = threading.Lock()
        self._is_at_work = False
        # What is to be run; None when the worker is gone.
        self._asked: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._read, name="penstock-worker", daemon=True).start()

    def receive(self) -> Any:
        """The next handler to run; None when there will be none."""
        return self._asked.get()

    def send(self, message: object) -> None:
        """Tell the worker."""
        with self._sending:
            self._pipe.send(message)

    def answer(self, message: object) -> None:
        """Tell the worker how the handler ended."""
        # Before it knows: it may close the pipe then, and this process ends as programs do.
        self._is_at_work = False
        self.send(message)

    def _read(self) -> None:
        try:
            while True:
                message = self._pipe.recv()
                if isinstance(message, Stopping):
                    self.is_stopping = True
                else:
                    self._is_at_work = True
                    self._asked.put(message)
        except (EOFError, OSError):
            if self._is_at_work:
                # As a handler in one of the worker's threads ends with it: the job is another worker's by and by.
                os._exit(1)
            self._asked.put(None)


class MainModule:
    """The program's main module: imported here once a handler, or a middleware, is in it, and under another name."""

    def __init__(self) -> None:
        self.location: dict[str, str] = {}
        self.is_being_imported = False

    def load(self) -> Any:
        """Import it, unless it was."""
        if "__mp_main__" not in sys.modules:
            self.is_being_imported = True
            try:
                prepare(self.location)
            finally:
                self.is_being_imported = False
        if "__mp_main__" not in sys.modules:
            raise InvalidInput("executor", "a process cannot import this program: put its handler into a module")
        return sys.modules["__mp_main__"]


_main_module = MainModule()


def refuse_in_main_import(call: str) -> None:
    """Refuse what a main script does when it is imported by a handler process: each of these would do it again."""
    if _main_module.is_being_imported:
        place = next(iter(_main_module.location.values()))
        raise PenstockError(
            f"{call} is called at the top of {place}, which a handler process imports, for a handler with "
            "executor='process' is in it: put the call under if __name__ == '__main__':, or the handler into a module "
            "of its own"
        )


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
        attributes = facts["attributes"]
        self.tags: list[str] = attributes.get("tags", [])
        self.tenant: str | None = attributes.get("tenant")
        self.trace: TraceContext | None = trace_of(attributes)

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was told to stop, and waits for this handler; known within a second."""
        return self._parent.is_stopping

    def progress(self, value: float | None = None, note: str | None = None) -> None:
        """Say how far the job has come."""
        self._parent.send(Progress(self.job_id, *checked_progress(value, note)))

    def settle(self, connection: Any, result: Any = None) -> None:
        """Refused."""
        raise InvalidInput("executor", "a handler in a process cannot settle its job; declare it without executor=")

    async def asettle(self, connection: Any, result: Any = None) -> None:
        """Refused."""
        self.settle(connection, result)


def main(pipe: Pipe) -> None:
    """Serve until the parent closes the pipe. The log is written as the parent writes it, if it does."""
    # Importing this has imported multiprocessing, which knows the program that starts the process as the main one.
    sys.modules.pop("__mp_main__", None)
    sys.argv, _main_module.location, log_setting, wanted = pipe.recv()
    if log_setting is not None:
        write_log(log_setting)
    parent = Parent(pipe)
    for located in wanted:
        with suppress(BaseException):  # The job that needs it is told what is wrong.
            _find(*located)
    parent.answer(None)  # Up: from now on a handler's time counts.
    while (asked := parent.receive()) is not None:
        handler, middleware, args, facts = asked
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
        try:
            parent.answer(answer)
        except OSError:  # The worker is gone.
            return


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
    """Call a batch handler within the middleware."""
    function = _find(*located)
    arguments = BatchArguments(function)
    each: dict[int, Returned | Failed] = {}
    items, given = [], []
    for index, encoded in enumerate(args):
        try:
            items.append(arguments.decode_item(encoded))
            given.append(index)
        except BaseException as error:  # A model's own validators may raise anything.
            each[index] = Failed(_portable(error), describe(error))
    if not given:
        return Answers(each)
    context: BatchContext = JobsContext([contexts[index] for index in given])
    call = functools.partial(function, **arguments.named(items, context))
    try:
        outcomes = _around(middleware).run(context, items, call, run_on_own_loop)
    except BaseException as error:  # Of those that were given to it: what is known of the others stays.
        return Answers(each, raised=Failed(_portable(error), describe(error)))
    breach = find_breach(outcomes, len(given))
    if breach is not None:
        return Answers(each, breach)
    for index, outcome in zip(given, outcomes or (), strict=False):
        is_error = isinstance(outcome, BaseException)
        each[index] = Failed(_portable(outcome), describe(outcome)) if is_error else _answer(outcome)
    return Answers(each)


def _answer(result: Any) -> Returned | Failed:
    try:
        return Returned(None if result is None else encode_result(result))
    except InvalidInput as error:
        return Failed(error, describe(error), is_final=True)


def _find(module: str, name: str) -> Any:
    found: Any = _main_module.load() if module == "__main__" else importlib.import_module(module)
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
