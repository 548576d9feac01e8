"""A server that a test may kill, and what can be asked about a process."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

from penstock.embedded import Server

__all__ = ["OwnServer", "catches_sigterm", "is_stopped"]


class OwnServer:
    """A server of the test's own, with a fresh database, that may be killed and has few connections to give."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.url = server.url

    def kill(self) -> None:
        """SIGKILL the server; its supervisor starts it again, which recovers from its log."""
        while True:
            process = int((self._server.home / "data" / "postmaster.pid").read_text().splitlines()[0])
            try:
                watched = os.pidfd_open(process)
                break
            except ProcessLookupError:
                time.sleep(0.05)  # It is being started again, and has not said who it is.
        os.kill(process, signal.SIGKILL)
        select.select([watched], [], [])
        os.close(watched)


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def catches_sigterm(pid: int) -> bool:
    """Whether a process has said what to do on SIGTERM."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
