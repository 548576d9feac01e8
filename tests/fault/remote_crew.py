"""Servers and workers far away as processes, to kill and to stop, beside a stage."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fault.own_server import catches_sigterm
from tests.fault.stage import ROOT, Stage, eventually, is_stopped

__all__ = ["RemoteCrew"]

QUEUES: Mapping[str, Any] = {
    "work": {"plain": {"max_attempts": 25, "backoff": 0}, "lane": {"max_attempts": 25, "backoff": 0}},
    "ordered": {"step": {"max_attempts": 25, "backoff": 0.05}},
}


class RemoteCrew:
    """Two servers, each on a socket of its own, and workers that call both."""

    def __init__(self, stage: Stage, folder: Path, *, lease: float, workers: int) -> None:
        self._stage = stage
        self._lease = lease
        # A path that is long is none for a socket.
        self._folder = Path(os.path.relpath(folder, ROOT))
        self._log = (folder / "remote.log").open("ab")
        self.sockets = [str(self._folder / f"{number}.sock") for number in range(2)]
        if any(len(path) > 100 for path in self.sockets):
            self.sockets = [f"/tmp/penstock-{os.getpid()}-{number}.sock" for number in range(2)]
        self.servers = [self.serve(path) for path in self.sockets]
        self.workers = [self.work() for _ in range(workers)]

    def serve(self, path: str) -> subprocess.Popen[bytes]:
        """A server on this socket."""
        Path(ROOT, path).unlink(missing_ok=True)
        urls = " ".join(self._stage.urls)
        return self._start("tests.fault.remote_server", urls, path, str(self._lease))

    def work(self) -> subprocess.Popen[bytes]:
        """A worker far away."""
        seed = str(self._stage.random.randrange(1 << 30))
        history = str(self._stage.history)
        return self._start(
            "tests.fault.remote_client", history, json.dumps(QUEUES), str(self._lease), seed, *self.sockets
        )

    def kill_server(self, number: int) -> None:
        """Kill one, and start another in its place."""
        _end(self.servers[number], signal.SIGKILL)
        self.servers[number] = self.serve(self.sockets[number])

    def restart_server(self, number: int) -> None:
        """Have one stop gently, and start another in its place."""
        # One that has only just been started is ended by the signal like any program.
        eventually(lambda: catches_sigterm(self.servers[number].pid), "the server has begun")
        _end(self.servers[number], signal.SIGTERM)
        assert self.servers[number].returncode == 0
        self.servers[number] = self.serve(self.sockets[number])

    def kill_worker(self, number: int) -> None:
        """The same of a worker."""
        _end(self.workers[number], signal.SIGKILL)
        self.workers[number] = self.work()

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """Stop a process, so that it says nothing and hears nothing."""
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: is_stopped(process.pid), "the process is stopped")
        self._stage.recorder.note("stop", "ok", label=str(process.pid))

    def check(self) -> None:
        """Nobody has ended by itself: a worker does that was told two things."""
        for process in (*self.servers, *self.workers):
            assert process.poll() is None, f"it ended with {process.returncode}: {process.args!r}"

    def close(self) -> None:
        """End everybody."""
        for process in self.workers:
            _end(process, signal.SIGKILL)
        for process in self.servers:
            _end(process, signal.SIGTERM)
        self._log.close()
        for path in self.sockets:
            Path(ROOT, path).unlink(missing_ok=True)

    def _start(self, module: str, *args: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", module, *args]
        return subprocess.Popen(command, cwd=ROOT, stdout=self._log, stderr=self._log)


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    process.send_signal(signal.SIGCONT)
    process.send_signal(number)
    process.wait(60)
