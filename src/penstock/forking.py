"""What a forked child makes anew.

A child of `os.fork` has its parent's memory and none of its threads: a lock that another thread held stays locked, and
nobody runs in its pools. It also has the parent's sockets: what both wrote there would go into one conversation.
Whoever holds such things registers here, and is told in every child before anything else runs there. It lets go of
what is the parent's without a word to the server, for a goodbye would end the parent's session, and starts anew.

Locks of libraries cannot be made anew: OpenSSL holds one while the driver signs in, and a child that was forked in that
moment would never connect. So a fork waits until nobody is in such a moment.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["between_forks", "let_go", "renew_in_children", "steps_between_forks"]


T = TypeVar("T")
Yielded = TypeVar("Yielded")
Sent = TypeVar("Sent")
# So long a fork waits for what must not be forked: a name server that does not answer holds up nobody for ever.
PATIENCE_SECONDS = 2.0
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


def steps_between_forks(steps: Generator[Yielded, Sent, T]) -> Generator[Yielded, Sent, T]:
    """The same steps; no fork comes while one of them is done, only between them."""
    try:
        with between_forks:
            wanted = next(steps)
        while True:
            given = yield wanted
            with between_forks:
                wanted = steps.send(given)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()


class _Gate:
    """Any number of threads are inside, or one forks."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._is_forking = False

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_forking)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def shut(self) -> None:
        """Before a fork: let nobody in, and wait until all are out."""
        self._changed.acquire()
        self._is_forking = True
        self._changed.wait_for(lambda: not self._inside, PATIENCE_SECONDS)

    def open(self) -> None:
        """In the parent, after it."""
        self._is_forking = False
        self._changed.notify_all()
        self._changed.release()

    def renew(self) -> None:
        """In the child: nobody is inside."""
        self.__init__()  # type: ignore[misc]


# What is done within it is not cut by a fork.
between_forks = _Gate()


def _renew() -> None:
    between_forks.renew()
    for thing, renew in list(_renewed.items()):
        renew(thing)


os.register_at_fork(before=between_forks.shut, after_in_parent=between_forks.open, after_in_child=_renew)
