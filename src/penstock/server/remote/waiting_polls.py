"""The polls that wait for jobs on one database, in lines: one for all whose workers want the same queues and tasks.

When there is news of a queue the first of each line that has it tries, and the next if that one was given something: a
thousand that wait do not all ask for one job. All of it happens on the event loop; what asks the database is handed to
threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple, Protocol

from penstock.server.remote.registered_worker import QueueSet

__all__ = ["Line", "Tried", "WaitingPoll", "WaitingPolls"]

# A line looks again at least so often where an owner or a rate says that something may start.
SHORTEST_PAUSE_SECONDS = 0.01


class Tried(NamedTuple):
    """What came of trying: `got` is None where it is being tried already; else in how many seconds to try again."""

    got: bool | None
    again_in: float | None = None


class WaitingPoll(Protocol):
    """A poll that waits."""

    @property
    def queues(self) -> QueueSet:
        """All that its worker wants, be they owned or not."""

    async def try_on(self, shard: int) -> Tried:
        """Try to get something from a database."""


class Line:
    """Polls that wait for the same, the one that came first at the front."""

    def __init__(self, shard: int, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._shard = shard
        self._spawn = spawn
        self.polls: dict[WaitingPoll, None] = {}
        # Whether somebody tries now, and whether there was news since.
        self._is_trying = False
        self._has_news = False
        self._again: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """There is news."""
        self._has_news = True
        if not self._is_trying and self.polls:
            self._is_trying = True
            self._spawn(self._try())

    def close(self) -> None:
        """Nobody waits any more."""
        if self._again is not None:
            self._again.cancel()

    async def _try(self) -> None:
        again_in: float | None = None
        try:
            while self._has_news and self.polls:
                self._has_news = False
                again_in = await self._serve()
        finally:
            self._is_trying = False
        self._look_again_in(again_in)

    async def _serve(self) -> float | None:
        """Have one after the other try, for as long as each is given something."""
        for poll in list(self.polls):
            if poll in self.polls:
                tried = await poll.try_on(self._shard)
                if tried.got is False:
                    return tried.again_in
        return None

    def _look_again_in(self, seconds: float | None) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if seconds is not None and self.polls:
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(max(seconds, SHORTEST_PAUSE_SECONDS), self.wake)


class WaitingPolls:
    """The lines of one database."""

    def __init__(self, shard: int, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._shard = shard
        self._spawn = spawn
        self._lines: dict[QueueSet, Line] = {}
        # By queue, how often there was news of it.
        self._news: dict[int, int] = {}
        self._all_news = 0

    def __len__(self) -> int:
        return sum(len(line.polls) for line in self._lines.values())

    def __iter__(self) -> Iterator[WaitingPoll]:
        return (poll for line in self._lines.values() for poll in line.polls)

    @property
    def queues(self) -> set[int]:
        """Those for which any poll waits."""
        return {queue for key in self._lines for queue, _ in key}

    def news_of(self, queues: QueueSet) -> int:
        """A number that grows with all news of these queues."""
        return self._all_news + sum(self._news.get(queue, 0) for queue, _ in queues)

    def enter(self, poll: WaitingPoll, seen: int) -> None:
        """Wait; what was news since that number was seen is looked at at once."""
        line = self._lines.get(poll.queues)
        if line is None:
            line = self._lines[poll.queues] = Line(self._shard, self._spawn)
        line.polls[poll] = None
        if self.news_of(poll.queues) != seen:
            line.wake()

    def leave(self, poll: WaitingPoll) -> None:
        """Wait no more."""
        line = self._lines.get(poll.queues)
        if line is not None and line.polls.pop(poll, poll) is None and not line.polls:
            line.close()
            del self._lines[poll.queues]

    def wake(self, queue: int | None = None) -> None:
        """There is news of a queue, or of any."""
        if queue is None:
            self._all_news += 1
        else:
            self._news[queue] = self._news.get(queue, 0) + 1
        for key, line in list(self._lines.items()):
            if queue is None or any(queue == each for each, _ in key):
                line.wake()
