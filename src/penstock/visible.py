"""Text that somebody else wrote, made safe to print.

A job's arguments, keys and errors may hold anything. A terminal would obey control characters, and characters that
turn the direction of writing around would make one text look like another; they are shown as their escapes. What is
logged may quote them, and without any set-up of logging Python writes it to standard error as it is: so it is made
safe where it is logged.
"""

from __future__ import annotations

import logging
import re

__all__ = ["as_json_text", "make_log_visible", "visible"]

_CONTROL = "\x00-\x1f\x7f-\x9f"
_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_BREAKS = "\u2028\u2029"
_HALVES = "\ud800-\udfff"
_UNSAFE = re.compile(f"[{_CONTROL}{_DIRECTION}{_BREAKS}{_HALVES}]")
_UNSAFE_BUT_LINES = re.compile(f"(?![\n\t])[{_CONTROL}{_DIRECTION}{_BREAKS}{_HALVES}]")

_PLAIN = logging.Formatter()


def visible(text: str, *, keeps_lines: bool = False) -> str:
    """The text with an escape for each character that a terminal would act on."""
    return (_UNSAFE_BUT_LINES if keeps_lines else _UNSAFE).sub(_escape, text)


def as_json_text(raw: bytes) -> str:
    """JSON that means the same and may be printed. Such characters only stand inside its strings."""
    return _UNSAFE_BUT_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", raw.decode())


def make_log_visible() -> None:
    """From now on whatever is logged to the logger `penstock` is safe to print, whoever prints it."""
    logging.getLogger("penstock").addFilter(_make_visible)


def _make_visible(record: logging.LogRecord) -> bool:
    said = record.getMessage()
    # Where nothing is wrong with it the record stays as it is: handlers may want its parts.
    if _UNSAFE_BUT_LINES.search(said):
        record.msg, record.args = visible(said, keeps_lines=True), None
    if record.exc_info and not record.exc_text:
        record.exc_text = visible(_PLAIN.formatException(record.exc_info), keeps_lines=True)
    return True


def _escape(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]
