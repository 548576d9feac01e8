"""What Spark's processes write to stderr, without lines that tell nothing.

A JVM that starts Spark greets, and its Python processes end with a traceback when the JVM has no more use for them:
it hangs up while they answer. What they write goes through a thread that leaves these out and passes on everything
else. Several may end at once, and their lines mix.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

__all__ = ["filter_stderr"]

_GREETINGS = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Using Spark's default log4j profile",
)
_TRACEBACK = b"Traceback (most recent call last):"
# How the traceback of a process ends whose JVM has closed the connection, and what stands between such tracebacks.
_HUNG_UP = (b"BrokenPipeError:", b"ConnectionResetError:")
_BETWEEN_TRACEBACKS = (
    b"PySpark daemon failed to flush the output to the worker process:",
    b"During handling of the above exception, another exception occurred:",
)


@contextmanager
def filter_stderr() -> Iterator[None]:
    """Whatever process is started in this block complains through the thread, for as long as it lives."""
    ours = os.dup(2)
    read, write = os.pipe()
    os.dup2(write, 2)
    os.close(write)
    Thread(target=_copy_filtered, args=(read, os.dup(ours)), name="penstock-spark-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _copy_filtered(source: int, target: int) -> None:
    with os.fdopen(source, "rb") as lines, os.fdopen(target, "wb", buffering=0) as out:
        buffer = _TracebackBuffer()
        for line in lines:
            if passed := buffer.take(line):
                out.write(passed)
        out.write(buffer.flush())


class _TracebackBuffer:
    """Keeps tracebacks until they end: left out where all of them end with a closed connection, else shown whole."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._open = 0
        self._is_shown = False
        # Blank lines that follow a traceback which was left out are left out too.
        self._was_left_out = False

    def take(self, line: bytes) -> bytes:
        """What is to be shown now."""
        if line.startswith(_TRACEBACK):
            self._open += 1
        elif not self._open:
            return self._take_between(line)
        self._lines.append(line)
        if line.startswith((b" ", _TRACEBACK)) or not line.strip() or line.startswith(_BETWEEN_TRACEBACKS):
            return b""
        self._open -= 1
        self._is_shown = self._is_shown or not line.startswith(_HUNG_UP)
        if self._open:
            return b""
        self._was_left_out = not self._is_shown
        return self.flush() if self._is_shown else self._drop()

    def flush(self) -> bytes:
        """What is kept, ended or not."""
        held = b"".join(self._lines)
        self._drop()
        return held

    def _take_between(self, line: bytes) -> bytes:
        if line.startswith(_BETWEEN_TRACEBACKS):
            self._lines.append(line)
            return b""
        if line.startswith(_GREETINGS) or (self._was_left_out and not line.strip()):
            return b""
        self._was_left_out = False
        return self.flush() + line

    def _drop(self) -> bytes:
        self._lines, self._open, self._is_shown = [], 0, False
        return b""
