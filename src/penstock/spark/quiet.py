"""Spark's complaints without those that mean nothing.

A JVM that starts Spark greets, and its Python processes end with a traceback when the JVM has no more use for them.
What they write goes through a thread that leaves these out and passes on everything else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

__all__ = ["quiet_start"]

_GREETINGS = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Using Spark's default log4j profile",
)
_TRACEBACK = b"Traceback (most recent call last):"
_ENDED = b"BrokenPipeError:"


@contextmanager
def quiet_start() -> Iterator[None]:
    """Whatever process is started in this block complains through the thread, for as long as it lives."""
    ours = os.dup(2)
    read, write = os.pipe()
    os.dup2(write, 2)
    os.close(write)
    Thread(target=_pass_on, args=(read, os.dup(ours)), name="penstock-spark-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _pass_on(source: int, target: int) -> None:
    held: list[bytes] = []
    with os.fdopen(source, "rb") as lines, os.fdopen(target, "wb", buffering=0) as out:
        for line in lines:
            if held or line.startswith(_TRACEBACK):
                held.append(line)
                if len(held) > 1 and not line.startswith(b" "):
                    if not line.startswith(_ENDED):
                        out.write(b"".join(held))
                    held = []
            elif not line.startswith(_GREETINGS):
                out.write(line)
        out.write(b"".join(held))
