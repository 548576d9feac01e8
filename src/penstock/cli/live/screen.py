"""The terminal while something is shown live: the whole of it, its keys as they are struck, its size as it is now.

However the block ends, by a key, Ctrl-C, SIGTERM, a closed window or an error, the terminal is given back as it was
found; so it is for as long as the program is suspended (Ctrl-Z). Only lines that changed are written: over ssh a screen
on which nothing happens costs nothing.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

from rich.console import Console
from rich.text import Text

from penstock.cli.live.keyboard import decode_keys

try:
    import termios
    import tty

    _READS_KEYS = True
except ImportError:  # This platform has none: what is shown is shown, and keys do nothing.
    _READS_KEYS = False

__all__ = ["Screen", "has_keys"]

# Another screen than the one with the shell's lines, no cursor, and lines that are too long are cut.
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_SMALLEST = (20, 5)
# The rest of a key's sequence is on its way.
_REST_SECONDS = 0.05


def has_keys() -> bool:
    """Whether keys can be read one by one."""
    return _READS_KEYS and sys.stdin.isatty()


class Screen:
    """Used by the main thread; `wake` by any."""

    def __init__(self) -> None:
        self._out = sys.stdout.fileno()
        self._in = sys.stdin.fileno() if has_keys() else None
        self._encoding = sys.stdout.encoding or "utf-8"
        self._before: list[Any] | None = None
        self._handlers: dict[signal.Signals, Any] = {}
        self._lines: list[str] = []
        self._is_stale = True
        self._woken, self._waker = os.pipe()
        for end in (self._woken, self._waker):
            os.set_blocking(end, False)

    def __enter__(self) -> Self:
        try:
            self._take_signals()
            self._take()
        except BaseException:
            self._give_back()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A second Ctrl-C must not find the terminal half given back.
        held = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._give_back()
            for end in (self._woken, self._waker):
                os.close(end)
        finally:
            signal.signal(signal.SIGINT, held)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        try:
            columns, lines = os.get_terminal_size(self._out)
        except OSError:
            columns, lines = 80, 24
        # Some terminals do not know theirs.
        return (max(columns or 80, _SMALLEST[0]), max(lines or 24, _SMALLEST[1]))

    def show(self, lines: Sequence[Text]) -> None:
        """Fill the screen with these."""
        columns, count = self.size
        drawn = [_draw(line, columns) for line in lines[:count]]
        drawn += [""] * (count - len(drawn))
        # What makes it stale from here on, in a signal's handler, is for the next call.
        is_stale, self._is_stale = self._is_stale, False
        before = [] if is_stale else self._lines
        changed = [
            f"\x1b[{number};1H\x1b[0m\x1b[2K{line}\x1b[0m"
            for number, line in enumerate(drawn, 1)
            if number > len(before) or before[number - 1] != line
        ]
        self._lines = drawn
        if changed:
            self._write("".join(changed))

    def redraw(self) -> None:
        """What is on the screen is not what was put there: write all of it with the next `show`."""
        self._is_stale = True

    def wake(self) -> None:
        """Let whoever waits for keys go on."""
        # Full: whoever waits goes on anyway. Closed: nobody waits any more.
        with suppress(OSError):
            os.write(self._waker, b".")

    def wait(self, seconds: float) -> list[str]:
        """The keys that were struck; none where the time is over, or something else happened."""
        ends = [self._woken] if self._in is None else [self._in, self._woken]
        ready, _, _ = select.select(ends, [], [], max(seconds, 0.0))
        if self._woken in ready:
            with suppress(BlockingIOError):
                while os.read(self._woken, 1024):
                    pass
        return self._read_keys() if self._in is not None and self._in in ready else []

    def _read_keys(self) -> list[str]:
        assert self._in is not None  # noqa: S101
        raw = os.read(self._in, 1024)
        if not raw:  # The terminal is gone.
            raise EOFError
        while raw.endswith((b"\x1b", b"\x1b[", b"\x1bO")) and select.select([self._in], [], [], _REST_SECONDS)[0]:
            raw += os.read(self._in, 1024)
        return list(decode_keys(raw))

    def _take(self) -> None:
        if self._in is not None:
            self._before = termios.tcgetattr(self._in)
            tty.setcbreak(self._in)
        self._is_stale = True
        self._write(_ENTER)

    def _leave(self) -> None:
        with suppress(OSError):
            self._write(_LEAVE)
        if self._in is not None and self._before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def _give_back(self) -> None:
        self._leave()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()

    def _take_signals(self) -> None:
        for name, handler in (
            ("SIGTERM", self._end),
            ("SIGHUP", self._end),
            ("SIGWINCH", self._resize),
            ("SIGTSTP", self._suspend),
        ):
            if (number := getattr(signal, name, None)) is not None:
                self._handlers[number] = signal.signal(number, handler)

    def _end(self, number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    def _resize(self, number: int, frame: FrameType | None) -> None:
        self._is_stale = True
        self.wake()

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self._leave()
        # As without a handler: the process stops here, and goes on behind it with SIGCONT.
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspend)
        self._take()
        self.wake()

    def _write(self, text: str) -> None:
        raw = text.encode(self._encoding, "replace")
        while raw:
            raw = raw[os.write(self._out, raw) :]


def _draw(line: Text, columns: int) -> str:
    """A line as the terminal takes it, with its colours, and no longer than the screen is wide."""
    into = io.StringIO()
    console = Console(
        file=into, force_terminal=True, width=columns, markup=False, emoji=False, highlight=False, legacy_windows=False
    )
    cut = line.copy()
    cut.truncate(columns, overflow="ellipsis")
    console.print(cut, end="", no_wrap=True, overflow="ignore", crop=False)
    return into.getvalue()
