"""Whether a worker that should end when nothing is left to do may end: when all its sites are idle in the same moment.

A job of one site may enqueue on the database of another that was looked at before. So there are rounds: one is
complete when every site has looked in it and found nothing; anything that anybody does begins a new one. After two
complete rounds one upon the other there was a moment, between them, at which nothing ran and after which every site
found nothing: nobody is left who could enqueue. A site whose database does not answer is left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

__all__ = ["Quiet"]


class Quiet:
    """Shared by the sites of a worker."""

    def __init__(self, look_again: Callable[[], None]) -> None:
        self._look_again = look_again
        self._lock = threading.Lock()
        self._is_away: dict[Hashable, Callable[[], bool]] = {}
        self._idle: set[Hashable] = set()
        self._complete = 0
        self.round = 0
        # Set once: everybody may go.
        self.is_over = False

    def join(self, site: Hashable, is_away: Callable[[], bool]) -> None:
        """One more site is to be idle, unless its database is away at that moment."""
        with self._lock:
            self._is_away[site] = is_away
            self._begin_anew()

    def busy(self) -> None:
        """Something was done, or is left to do."""
        with self._lock:
            self._begin_anew()

    def idle(self, site: Hashable, began_in: int) -> bool:
        """A site has looked since that round, and found nothing; whether everybody may go."""
        with self._lock:
            if self.is_over or began_in != self.round:
                return self.is_over
            self._idle.add(site)
            present = {each for each, is_away in self._is_away.items() if each in self._idle or not is_away()}
            if self._idle != present:
                return False
            self._complete += 1
            self.is_over = len(self._is_away) == 1 or self._complete > 1
            self.round += 1
            self._idle.clear()
        self._look_again()
        return self.is_over

    def _begin_anew(self) -> None:
        self._complete = 0
        self.round += 1
        self._idle.clear()
