"""Children by `os.fork`, as a server forks them: with its parent's memory and sockets, and none of its threads."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["Forked"]

# A child that has not returned by then notes where its threads are; one that never does ends by itself.
HANGING_SECONDS = 25
PATIENCE_SECONDS = 60


class Forked:
    """A child that runs one function and ends without running anything else of the parent's."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._reads, writes = os.pipe()
        # What is raised while the child renews what it has is told to nobody but this hook.
        raised: list[str] = []
        told_before, sys.unraisablehook = sys.unraisablehook, lambda said: raised.append(repr(said.exc_value))
        with warnings.catch_warnings():
            # From 3.12 on Python warns whoever forks beside threads: that is what is tested.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid:
            sys.unraisablehook = told_before
            os.close(writes)
            return
        os.close(self._reads)
        try:
            signal.alarm(PATIENCE_SECONDS)
            stacks = tempfile.TemporaryFile("w+")  # noqa: SIM115
            watch = threading.Timer(HANGING_SECONDS, lambda: faulthandler.dump_traceback(stacks))
            watch.daemon = True
            watch.start()
            try:
                answer = pickle.dumps((not raised, raised or function()))
            except BaseException:
                stacks.seek(0)
                answer = pickle.dumps((False, f"{traceback.format_exc()}\n{stacks.read()}"))
            with os.fdopen(writes, "wb") as pipe:
                pipe.write(answer)
        finally:
            os._exit(0)

    def answer(self) -> Any:
        """What the function returned; an AssertionError with its traceback where it raised, or never returned."""
        with os.fdopen(self._reads, "rb") as pipe:
            told = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        assert told, f"the child ended with status {os.waitstatus_to_exitcode(status)} and said nothing"
        is_well, answer = pickle.loads(told)
        assert is_well, answer
        return answer
