"""Idle rounds: how a worker with `until_idle` finds out that all its databases have nothing left to do, at one moment.

The members are its database workers. A job of one database may enqueue on another that was looked at before. So there
are rounds: one is complete when every member has looked in it and found nothing; anything that anybody does begins a
new one. Between two complete rounds in a row there was a moment at which nothing ran and after which every member found
nothing: nobody is left who could enqueue. A member whose database does not answer is left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

__all__ = ["IdleRounds"]


class IdleRounds:
    """Shared by the database workers of a worker."""

    def __init__(self, look_again: Callable[[], None]) -> None:
        self._look_again = look_again
        self._lock = threading.Lock()
        self._is_away: dict[Hashable, Callable[[], bool]] = {}
        self._idle: set[Hashable] = set()
        self._complete = 0
        self.round = 0
        # Set once: everybody may end.
        self.may_end = False

    def join(self, member: Hashable, is_away: Callable[[], bool]) -> None:
        """Wait for one more member to be idle, unless its database is away at that moment."""
        with self._lock:
            self._is_away[member] = is_away
            self._begin_anew()

    def note_busy(self) -> None:
        """Something was done, or is left to do."""
        with self._lock:
            self._begin_anew()

    def note_idle(self, member: Hashable, began_in: int) -> bool:
        """A member that looked after this round began found nothing; whether everybody may end."""
        with self._lock:
            if self.may_end or began_in != self.round:
                return self.may_end
            self._idle.add(member)
            present = {each for each, is_away in self._is_away.items() if each in self._idle or not is_away()}
            if self._idle != present:
                return False
            self._complete += 1
            self.may_end = len(self._is_away) == 1 or self._complete > 1
            self.round += 1
            self._idle.clear()
        self._look_again()
        return self.may_end

    def _begin_anew(self) -> None:
        self._complete = 0
        self.round += 1
        self._idle.clear()
