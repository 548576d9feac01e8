"""How a worker's process ends though something in it does not: no thread can be ended from outside, and Python waits at
its exit for some of them, such as those of asyncio.to_thread.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

from penstock.clock import system

__all__ = ["STUCK_STATUS", "leave_at_once", "limit_exit"]

# EX_TEMPFAIL of sysexits.h: something passing, try again. Every supervisor that restarts failed processes does.
STUCK_STATUS = 75
# How long Python may take to exit.
EXIT_SECONDS = 10.0
# How long writing out what is buffered may take: a thread that hangs may hold its lock.
FLUSH_SECONDS = 5.0


def leave_at_once(status: int) -> NoReturn:
    """End this process, whatever runs in it, once what was printed and logged is written."""
    for child in multiprocessing.active_children():
        child.kill()
    flushing = threading.Thread(target=_flush, daemon=True)
    flushing.start()
    flushing.join(FLUSH_SECONDS)
    os._exit(status)


def limit_exit(status: int) -> None:
    """See to it that this process, which is about to exit, soon has."""

    def leave() -> None:
        system.sleep(EXIT_SECONDS)
        logging.getLogger("penstock").warning("threads of handlers do not end; the process ends without them")
        leave_at_once(status)

    threading.Thread(target=leave, daemon=True).start()


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
