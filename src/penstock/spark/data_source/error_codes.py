"""Errors on their way through Spark, which keeps only their text: each carries a code by which it is known again.

What a data source raises reaches the user inside one of Spark's own exceptions. There the text begins with
`[penstock:InvalidInput]` or whatever it was; the functions of `penstock.spark` raise the error itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from penstock import errors
from penstock.errors import InvalidInput, PenstockError, QueueFull
from penstock.shards.load_commit import MapChanged

__all__ = ["decode_errors", "encode_errors"]

_CODED_TEXT = re.compile(r"\[penstock:(\w+)\] (.*)")
_QUEUE_FULL_TEXT = re.compile(r"queue '(.*)' is full: max_length (\d+)")


@contextmanager
def encode_errors() -> Iterator[None]:
    """Give errors that leave a data source their code."""
    try:
        yield
    except PenstockError as error:
        raise PenstockError(f"[penstock:{type(error).__name__}] {error}") from None


@contextmanager
def decode_errors() -> Iterator[None]:
    """Raise what a data source raised, instead of what Spark made of it."""
    try:
        yield
    except Exception as error:
        found = _CODED_TEXT.search(str(error))
        if found is None:
            raise
        raise _rebuild_error(found[1], found[2].rstrip()) from error


def _rebuild_error(name: str, text: str) -> PenstockError:
    kind = MapChanged if name == MapChanged.__name__ else getattr(errors, name, PenstockError)
    if kind is InvalidInput:
        field, _, problem = text.partition(": ")
        return InvalidInput(field, problem)
    if kind is QueueFull and (full := _QUEUE_FULL_TEXT.search(text)):
        return QueueFull(full[1], int(full[2]))
    error = PenstockError(text)
    if isinstance(kind, type) and issubclass(kind, PenstockError):
        error.__class__ = kind
    return error
