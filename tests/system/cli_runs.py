"""Runs of the command line as a user makes them: real processes, in a folder of their own."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path
from typing import Any, NamedTuple


class Run(NamedTuple):
    """What became of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class CommandLine:
    """`penstock` in a folder, on a database."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
        self.environment["PENSTOCK_URL"] = url

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "penstock", *words]

    def __call__(self, *words: str, **environment: str) -> Run:
        done = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return Run(done.returncode, done.stdout.decode(), done.stderr.decode())

    def done(self, *words: str) -> Run:
        """A run that must have done what was asked, without a word of complaint."""
        run = self(*words)
        assert (run.code, run.err) == (0, ""), run
        return run

    def refused(self, *words: str) -> str:
        """The one line of a run that must have been refused."""
        run = self(*words)
        assert (run.code, run.out) == (1, ""), run
        assert re.fullmatch("error: .+\n", run.err), run
        return run.err

    def wrong(self, *words: str) -> str:
        """The one line of a run that was used in a wrong way."""
        run = self(*words)
        assert (run.code, run.out) == (2, ""), run
        assert re.fullmatch("error: .+\n", run.err), run
        return run.err

    def on_terminal(self, *words: str, columns: int = 80, answer: str = "", **environment: str) -> Run:
        """A run whose input and output are a terminal of that width."""
        ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen(
            self.command(*words),
            cwd=self.folder,
            env=self.environment | {"TERM": "xterm-256color"} | environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        os.write(ours, answer.encode())
        shown = _read_all(ours)
        return Run(process.wait(), shown.replace("\r\n", "\n"), "")


def _read_all(terminal: int) -> str:
    chunks: list[bytes] = []
    while True:
        select.select([terminal], [], [])
        try:
            chunk = os.read(terminal, 65_536)
        except OSError:  # Linux: the other end is closed
            chunk = b""
        if not chunk:
            os.close(terminal)
            return b"".join(chunks).decode()
        chunks.append(chunk)
