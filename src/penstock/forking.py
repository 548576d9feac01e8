"""What a forked child makes anew.

A child of `os.fork` has its parent's memory and none of its threads: a lock that another thread held stays locked, and
nobody runs in its pools. It also has the parent's sockets: what both wrote there would go into one conversation.
Whoever holds such things registers here, and is told in every child before anything else runs there. It lets go of
what is the parent's without a word to the server, for a goodbye would end the parent's session, and starts anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["let_go", "renew_in_children"]


T = TypeVar("T")
_renewed: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def renew_in_children(thing: T, renew: Callable[[T], None]) -> None:
    """Have a thing made anew in every child that is forked while it lives."""
    _renewed[thing] = renew


def let_go(descriptor: int) -> None:
    """In a child: put nothing in a socket's place. The parent's conversation goes on, and ends when the parent does."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nothing, descriptor, inheritable=False)
    finally:
        os.close(nothing)


def _renew() -> None:
    for thing, renew in list(_renewed.items()):
        renew(thing)


os.register_at_fork(after_in_child=_renew)
