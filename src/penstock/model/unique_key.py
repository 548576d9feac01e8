"""What jobs that are unique while they wait have in common, as one text: the same in Python and in SQL.

It is made of the task and the arguments, or of the `unique_key` that stands for both, and kept beside the idempotency
keys. Arguments are the same if they are the same text as `jsonb`: neither the order of names makes a difference, nor
whether a number has an exponent. `penstock.unique_text` in SQL gives the same.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Any

from penstock.model.checks import UNIQUE_PREFIX

__all__ = ["jsonb_text", "unique_text"]

_SEPARATOR = "\x1f"


def unique_text(task: str, args_json: bytes, unique_key: str | None) -> str:
    """What is the same for jobs of which one waits; they are of one queue."""
    # No task has an empty name.
    said = f"{_SEPARATOR}{unique_key}" if unique_key is not None else f"{task}{_SEPARATOR}{jsonb_text(args_json)}"
    return UNIQUE_PREFIX + hashlib.sha256(said.encode()).hexdigest()


def jsonb_text(raw: bytes) -> str:
    """JSON as PostgreSQL writes it when it was `jsonb`."""
    return _write(json.loads(raw, parse_float=_Number, parse_int=_Number))


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def _write(value: Any) -> str:
    if isinstance(value, _Number):
        return _plain(value)
    if isinstance(value, dict):
        # Shorter names first, in bytes.
        named = sorted(value.items(), key=lambda each: (len(each[0].encode()), each[0].encode()))
        return "{" + ", ".join(f"{_write(name)}: {_write(each)}" for name, each in named) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _plain(number: str) -> str:
    """Without an exponent, and without a sign where it is zero."""
    is_whole = number.lstrip("-").isdecimal()
    text = str(number) if is_whole else format(Decimal(number), "f")
    return text.lstrip("-") if not text.strip("-0.") else text
