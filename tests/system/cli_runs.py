"""Runs of the command line as a user makes them: real processes, in a folder of their own.

Most are forked from one process that has imported the program, which takes longer than what it is asked to do; those
on a terminal and those that a test starts by `command` begin from nothing.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
from fcntl import ioctl
from pathlib import Path
from typing import Any, NamedTuple

from penstock.cli import run

_PROGRAMS = multiprocessing.get_context("forkserver")
_PROGRAMS.set_forkserver_preload(["penstock.cli"])


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
        with tempfile.TemporaryDirectory() as outputs:
            out, err = Path(outputs, "out"), Path(outputs, "err")
            process = _PROGRAMS.Process(
                target=_run, args=(words, self.folder, self.environment | environment, out, err)
            )
            process.start()
            process.join()
            assert process.exitcode is not None
            return Run(process.exitcode, out.read_text(), err.read_text())

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


def _run(words: tuple[str, ...], folder: Path, environment: dict[str, str], out: Path, err: Path) -> None:
    """In the forked process: become what `python -m penstock` would be."""
    for number, path in enumerate((Path(os.devnull), out, err)):
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = str(folder)
    sys.argv = ["penstock", *words]
    run()


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
