"""Bytes of a terminal as keys: a character is itself, any other key has a name. What is not known is passed over."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["decode_keys"]

_ESCAPE = "\x1b"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~])")
_NAMES = {
    "\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down",
    "\x1b[C": "enter", "\x1bOC": "enter", "\x1b[D": "escape", "\x1bOD": "escape",
    "\x1b[5~": "page up", "\x1b[6~": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home", "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end",
    "\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace", "\x0c": "redraw",
}  # fmt: skip


def decode_keys(raw: bytes) -> Iterator[str]:
    """The keys in what was read at once; an ESC that nothing follows is the key."""
    text = raw.decode(errors="ignore")
    at = 0
    while at < len(text):
        sequence = _SEQUENCE.match(text, at)
        if sequence is not None:
            at = sequence.end()
            if name := _NAMES.get(sequence[0]):
                yield name
            continue
        character = text[at]
        at += 1
        if character == _ESCAPE:
            yield "escape"
        elif character in _NAMES:
            yield _NAMES[character]
        elif character.isprintable():
            yield character
