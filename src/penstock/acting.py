"""Who acts: the person or program on whose behalf a call is made, for whatever is written down of what it did.

It travels with the thread or task of the call, as its deadline does, so that nobody on the way has to hand it on.
Whoever acts for others (the command line, a server) says so around the call; else it is the user of this process.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

__all__ = ["Actor", "Source", "acting_as", "current_actor"]

# Which door a call came through.
Source = Literal["python", "cli", "http"]


@dataclass(frozen=True, slots=True)
class Actor:
    """A name, the door through which it came, and from which address where that is another machine's."""

    name: str
    source: Source = "python"
    address: str | None = None


_current: ContextVar[Actor | None] = ContextVar("penstock_actor", default=None)


@contextmanager
def acting_as(actor: Actor) -> Iterator[Actor]:
    """What the block does is done on behalf of this one."""
    token = _current.set(actor)
    try:
        yield actor
    finally:
        _current.reset(token)


def current_actor() -> Actor:
    """On whose behalf this thread acts; where nobody said so, the user of this process, on this machine."""
    return _current.get() or Actor(_process_user())


def _process_user() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A container's user may have no name.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
