"""Several processes of one server: they listen at the same socket, and one that dies is started again.

Nothing is between them. This process starts them, waits, and passes on the word to stop.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence

from penstock.clock import system

__all__ = ["LISTENER", "inherited_listener", "run_processes"]

log = logging.getLogger("penstock")

# By this variable a process hears that it is one of several, and which descriptor it listens at.
LISTENER = "PENSTOCK_SERVE_DESCRIPTOR"
LOOK_SECONDS = 0.2
# One that died at once is started again no sooner.
PAUSE_SECONDS = 1.0


def inherited_listener() -> int | None:
    """The descriptor that this process is to listen at, where it is one of several."""
    given = os.environ.pop(LISTENER, None)
    return None if given is None else int(given)


def run_processes(count: int, listener: socket.socket, arguments: Sequence[str]) -> None:
    """Run so many until told to stop; each is `penstock` with these arguments."""
    is_over = threading.Event()
    before = {number: signal.signal(number, lambda *_: is_over.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    children = [_start(listener, arguments) for _ in range(count)]
    try:
        while not is_over.wait(LOOK_SECONDS):
            for index, child in enumerate(children):
                if child.poll() is not None:
                    log.warning("a process of the server ended with status %s, and is started again", child.returncode)
                    system.sleep(PAUSE_SECONDS)
                    children[index] = _start(listener, arguments)
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(listener: socket.socket, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    descriptor = listener.fileno()
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        env=os.environ | {LISTENER: str(descriptor)},
        pass_fds=[descriptor],
    )
