"""Two servers of the HTTP API as programs, to kill, and a caller that goes to the other where one does not answer."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from tests.fault.own_server import catches_sigterm
from tests.fault.stage import PATIENCE_SECONDS, eventually
from tests.server.programs import free_port

__all__ = ["Answer", "Caller", "HttpServers", "Unanswered"]

CALL_SECONDS = 60.0


class HttpServers:
    """Two `penstock serve` on one database, each at a port of its own, which it keeps."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self.log_path = folder / "servers.log"
        self._log = self.log_path.open("ab")
        self.ports = [free_port() for _ in range(2)]
        self._processes = [self._start(port) for port in self.ports]

    def kill(self, number: int) -> None:
        """Kill one, and start another in its place."""
        _end(self._processes[number], signal.SIGKILL)
        self._processes[number] = self._start(self.ports[number])

    def restart(self) -> None:
        """Have both stop gently at once, and start others in their places."""
        for process in self._processes:
            # One that has only just been started is ended by the signal like any program.
            eventually(lambda: catches_sigterm(process.pid), "the server has begun")  # noqa: B023
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in self._processes] == [0, 0]
        self._processes = [self._start(port) for port in self.ports]

    def check(self) -> None:
        """Neither has ended by itself."""
        for process in self._processes:
            assert process.poll() is None, f"a server ended with {process.returncode}"

    def close(self) -> None:
        """End both gently."""
        for process in self._processes:
            _end(process, signal.SIGTERM)
        self._log.close()

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        words = ["serve", "--url", self._url, "--port", str(port), "--log-level", "warning"]
        command = [sys.executable, "-m", "penstock", *words]
        return subprocess.Popen(command, stdout=self._log, stderr=self._log)


class Answer(NamedTuple):
    """What was answered."""

    status: int
    value: Any


class Unanswered(Exception):
    """Neither server answered for so long that nobody would wait."""


class Caller:
    """Calls of one thread. Each is made again, at the other server, until one answers and is not too busy: who calls
    says by a key or a number that it is the same call.
    """

    def __init__(self, ports: list[int], seed: int) -> None:
        self._ports = ports
        self._random = random.Random(seed)
        self._connections: dict[int, HTTPConnection] = {}
        self._at = self._random.randrange(len(ports))
        self.statuses: Counter[int] = Counter()
        # How often the last call was tried, its answer included.
        self.tries = 0

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """What is answered at last; by whom is as a load balancer has it."""
        self._at = self._random.randrange(len(self._ports))
        raw = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if raw is not None else {}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        deadline, self.tries = time.monotonic() + PATIENCE_SECONDS, 0
        while time.monotonic() < deadline:
            self.tries += 1
            answer = self._try(method, f"/api/v1/{path}", raw, given)
            if answer is not None and answer.status not in (429, 503):
                return answer
            self._at = (self._at + 1) % len(self._ports)
            if self.tries % len(self._ports) == 0:
                time.sleep(0.02)
        raise Unanswered(f"{method} {path}")

    def _try(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer | None:
        port = self._ports[self._at]
        connection = self._connections.get(port)
        if connection is None:
            connection = self._connections[port] = HTTPConnection("127.0.0.1", port, timeout=CALL_SECONDS)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, HTTPException):
            connection.close()
            del self._connections[port]
            return None
        self.statuses[response.status] += 1
        return Answer(response.status, json.loads(text) if text else None)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    process.send_signal(number)
    process.wait(60)
