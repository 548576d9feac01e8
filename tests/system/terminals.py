"""A program at a real pseudo-terminal, and what a person sees there, by pyte, which knows what a terminal does."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import Any, Self

import pyte
from tests.system.facts import eventually

__all__ = ["Terminal"]

# The terminal is the program's own: Ctrl-C, Ctrl-Z and a change of size reach it from there, also where the tests run
# in the background of a shell that has them ignore Ctrl-C.
_LEADS = (
    "import fcntl, os, signal, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
)
KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "tab": "\t",
    "ctrl-c": "\x03",
    "ctrl-z": "\x1a",
}


class Terminal:
    """One, with a program at it until the block ends."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], columns: int = 80, lines: int = 24
    ) -> None:
        self._ours, theirs = pty.openpty()
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self.resize(columns, lines)
        self.settings_before = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LEADS, *command],
            cwd=folder,
            env={**environment, "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        # Kept open: what the terminal is set to is asked when the program is gone.
        self._theirs = theirs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._theirs)
        os.close(self._ours)

    @property
    def lines(self) -> list[str]:
        """What is on the screen by now."""
        while select.select([self._ours], [], [], 0)[0]:
            chunk = os.read(self._ours, 65_536)
            self.raw += chunk
            self._stream.feed(chunk)
        return list(self._screen.display)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)

    @property
    def settings(self) -> list[Any]:
        """What the terminal is set to: whether it echoes, whether it waits for a whole line."""
        return termios.tcgetattr(self._theirs)

    def shows(self, *parts: str) -> str:
        """Wait until all of these are on the screen; all that is there."""

        def found() -> str | None:
            text = self.text
            return text if all(part in text for part in parts) else None

        try:
            return eventually(found, f"the screen shows {parts}") or ""
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows:\n{self.text}") from None

    def until(self, fact: Callable[[str], bool], what: str) -> str:
        """Wait until that is so of what is on the screen."""

        def found() -> str:
            text = self.text
            return text if fact(text) else ""

        return eventually(found, what)

    def press(self, *keys: str) -> None:
        """Strike keys: by name, or as the characters of a text."""
        os.write(self._ours, "".join(KEYS.get(key, key) for key in keys).encode())

    def resize(self, columns: int, lines: int) -> None:
        """Make the window larger or smaller."""
        self._screen.resize(lines, columns)
        ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait for the end of the program, and read all that it said; its exit code."""
        eventually(lambda: (self.lines, self.process.poll() is not None)[1], "the program ends")
        self.lines  # noqa: B018
        return self.process.returncode
