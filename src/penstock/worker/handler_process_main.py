"""What a handler process runs: it waits for a handler's name and arguments, calls it, answers, and waits again."""

from __future__ import annotations

import importlib
import pickle
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any

from penstock.errors import InvalidInput
from penstock.model.checks import checked_progress
from penstock.model.encoding import encode_result
from penstock.model.error_text import describe, summarize
from penstock.task.arguments import Arguments

__all__ = ["Failed", "ProcessContext", "Progress", "Returned", "main"]


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
class Progress:
    """The handler said how far it has come."""

    value: float | None
    note: str | None


class ProcessContext:
    """The context of a handler in a process: no transaction crosses that border, so it has no settle."""

    # Asked to stop, the process ends; there is nobody left to ask.
    is_cancelled = False

    def __init__(self, pipe: Pipe, facts: dict[str, Any]) -> None:
        self._pipe = pipe
        self.job_id: int = facts["job_id"]
        self.attempt: int = facts["attempt"]
        self.lease: int = facts["lease"]
        self.queue: str = facts["queue"]
        self.task: str = facts["task"]
        self.key: str | bytes | None = facts["key"]
        self.tags: list[str] = facts["tags"]
        self.tenant: str | None = facts["tenant"]

    def progress(self, value: float | None = None, note: str | None = None) -> None:
        """Say how far the job has come."""
        self._pipe.send(Progress(*checked_progress(value, note)))


def main(pipe: Pipe) -> None:
    """Serve until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send(None)  # Up: from now on a handler's time counts.
    while True:
        try:
            module, name, args, facts = pipe.recv()
        except (EOFError, OSError):
            return
        answer: Returned | Failed
        try:
            function = _find(module, name)
            arguments = Arguments(function)
            named = arguments.decode(args)
            if arguments.context_parameter is not None:
                named[arguments.context_parameter] = ProcessContext(pipe, facts)
            answer = _answer(function(**named))
        except BaseException as error:  # Whatever a handler raises is its job's end, not its process's.
            answer = Failed(_portable(error), describe(error))
        pipe.send(answer)


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
